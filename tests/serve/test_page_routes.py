"""The files of the page, and the list of models that it uses."""

import gzip
import re
from collections.abc import Sequence

import pytest
from fastapi.testclient import TestClient
from helpers import small_model

from transduce.inspect.page import MEDIA_TYPES, static_file
from transduce.serve.api_keys import ApiKeys
from transduce.serve.app import make_app
from transduce.serve.documents import document_suffixes
from transduce.serve.limits import Limits
from transduce.serve.served_models import ServedModels
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(toy_tokenizer: Tokenizer) -> Translator:
    return Translator(small_model(3, toy_tokenizer.vocab_size).eval(), toy_tokenizer)


def make_client(translator: Translator, names: Sequence[str] = ("model",), keys: Sequence[str] = ()) -> TestClient:
    models = ServedModels([(name, translator) for name in names])
    return TestClient(make_app(models, Limits(characters=500), ApiKeys([*keys])))


def test_the_page_and_its_files_are_served(translator: Translator) -> None:
    client = make_client(translator)
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    names = re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)
    assert sorted(names) == ["static/page.css", "static/page.js"]
    for name in names:
        file = client.get(f"/{name}")
        assert file.content == static_file(name.removeprefix("static/"))
        assert file.headers["content-type"] == MEDIA_TYPES[name.removeprefix("static/")]


@pytest.mark.parametrize("path", ["/", "/static/page.js"])
def test_files_are_compressed_and_not_sent_twice(translator: Translator, path: str) -> None:
    client = make_client(translator)
    with client.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        compressed = b"".join(answer.iter_raw())
    plain = client.get(path, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(compressed) == plain.content
    again = client.get(path, headers={"if-none-match": plain.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fpage.py", "%2e%2e%2fpage.py", "index.html%00"])
def test_no_other_file_is_served(translator: Translator, name: str) -> None:
    assert make_client(translator).get(f"/static/{name}").status_code == 404


def test_the_page_needs_no_key_and_says_whether_others_do(translator: Translator) -> None:
    client = make_client(translator, ["en-de", "toy"], ["secret"])
    assert client.get("/").status_code == 200
    assert client.get("/v1/translators").json() == {
        "models": [
            {"name": "en-de", "directions": [["en", "de"]], "tagged": False, "inspect": True, "aligns": True},
            {"name": "toy", "directions": [[None, None]], "tagged": False, "inspect": True, "aligns": True},
        ],
        "languages": {"en": "English", "de": "German"},
        "key_required": True,
        "characters": 500,
        "formats": document_suffixes(),
    }
