"""HTTP routes of the inspection page."""

import re
import subprocess
import sys

import pytest
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from helpers import small_model

from transduce.errors import TransduceError
from transduce.inspect.inspection import inspect_translation
from transduce.inspect.page import self_contained, static_file
from transduce.inspect.request import InspectionRequest
from transduce.inspect.routes import inspect_routes
from transduce.inspect.serialize import serialize
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator

INSPECT = "/inspect/look"


@pytest.fixture(scope="module")
def translator(toy_tokenizer: Tokenizer) -> Translator:
    return Translator(small_model(3, toy_tokenizer.vocab_size).eval(), toy_tokenizer)


@pytest.fixture(scope="module")
def client(translator: Translator) -> TestClient:
    app = FastAPI()
    app.include_router(inspect_routes({"model": translator}, run_in_threadpool))

    @app.exception_handler(TransduceError)
    async def unusable_request(_: Request, error: TransduceError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    return TestClient(app)


def test_an_inspection_is_returned_as_bytes(client: TestClient, translator: Translator) -> None:
    answer = client.post(INSPECT, json={"text": "bada gobi", "beam": 2, "off": ["cross.1.1"]})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    inspection = inspect_translation(translator, InspectionRequest(text="bada gobi", beam=2, off=["cross.1.1"]))
    assert translator.tokenizer.decode(inspection.best.tokens).encode() in answer.content


def test_a_model_is_chosen_by_name(client: TestClient) -> None:
    assert client.post(INSPECT, json={"text": "bada", "model": "model"}).status_code == 200
    answer = client.post(INSPECT, json={"text": "bada", "model": "other"})
    assert (answer.status_code, answer.json()["error"]) == (400, "no such model; available: model")


def test_an_invalid_request_is_answered_with_the_reason(client: TestClient) -> None:
    answer = client.post(INSPECT, json={"text": "ba", "off": ["cross.9.9"]})
    assert answer.status_code == 400
    assert "layers 1 to 2" in answer.json()["error"]


@pytest.mark.parametrize("body", [{}, {"text": 1}, {"text": "ba", "beam": "x"}, {"text": "ba", "prefix": "x"}, []])
def test_a_body_that_does_not_match_the_schema_is_rejected(client: TestClient, body: object) -> None:
    assert client.post(INSPECT, json=body).status_code == 422


def test_the_self_contained_page_refers_to_no_other_file(translator: Translator) -> None:
    inspection = inspect_translation(translator, InspectionRequest(text="bada </script> gobi"))
    page = self_contained(serialize(inspection, translator))
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r'(?:src|href)="(?!data:)', markup)
    assert page.count("<script") == page.count("</script>") == 2
    script = static_file("page.js").decode() + static_file("page.css").decode()
    assert set(re.findall(r"https?://[\w./]+", script)) <= {
        "http://www.w3.org/1999/xhtml",
        "http://www.w3.org/1998/Math/MathML",
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_an_inspection_without_a_server_does_not_import_fastapi() -> None:
    code = "import sys, transduce.inspect.page, transduce.inspect.command; print('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
