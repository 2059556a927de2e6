"""Files over HTTP: translated in the background, within limits, and kept for a limited time."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from document_samples import docx_of, paragraph, run
from document_samples.pdf import pdf_of, text_lines
from serving import TIMEOUT, ServerProcess, serve_in_thread

from transduce.serve.middleware import AdmissionMiddleware
from transduce.translation.translator import Translator

Server = tuple[str, AdmissionMiddleware]
PAGE = b"<p>babo <b>gigo</b></p><p>dedu</p>"
FIELDS = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def translator(trained: Any) -> Translator:
    return Translator.load(trained.run)


@pytest.fixture(scope="module")
def server(translator: Translator) -> Iterator[Server]:
    limits = {"file_bytes": 200_000, "file_characters": 2000, "characters": 500, "kept_files": 2, "files": 2}
    with serve_in_thread([("en-de", translator)], **limits) as served:
        yield served


def upload(server: Server, name: str, data: bytes, path: str = "/translate_file", **fields: str) -> httpx.Response:
    return httpx.post(f"{server[0]}{path}", files={"file": (name, data)}, data={**FIELDS, **fields}, timeout=TIMEOUT)


def wait(server: Server, status: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT
    while status["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
        status = httpx.get(f"{server[0]}/v1/documents/{status['id']}").json()
    return status


def test_a_file_is_translated_and_downloaded(server: Server, translator: Translator) -> None:
    answer = upload(server, "../../Seite ü.html", PAGE)
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert re.fullmatch(rf"{server[0]}/download_file/[\w-]{{32}}\..+\.html", url)
    download = httpx.get(url)
    assert re.sub("</?b>", "", download.text) == "".join(
        f"<p>{text}</p>" for text in translator.translate(["babo gigo", "dedu"])
    )
    assert download.text.count("<b>") == 1
    assert download.headers["content-disposition"].startswith("attachment; ")  # never shown as a page of this server
    assert download.headers["content-type"] == "application/octet-stream"
    assert download.headers["x-content-type-options"] == "nosniff"


def test_progress_is_reported_and_a_document_can_be_deleted(server: Server) -> None:
    data = docx_of(*(paragraph(run(f"The cat is {'very ' * (number % 7)} old.")) for number in range(70)))
    started = upload(server, "a.docx", data, "/v1/documents", source="auto")
    assert started.status_code == 202
    status = started.json()
    assert (status["total"], status["error"]) == (70, None)
    final = wait(server, status)
    assert (final["state"], final["done"]) == ("done", 70)
    assert httpx.get(server[0] + final["url"]).content.startswith(b"PK")
    assert httpx.delete(f"{server[0]}/v1/documents/{final['id']}").status_code == 204
    assert httpx.get(server[0] + final["url"]).status_code == 404
    assert httpx.get(f"{server[0]}/v1/documents/{final['id']}").status_code == 404


def test_what_a_translation_lacks_is_said(server: Server) -> None:
    warning = "a.pdf: no text on 1 of 2 pages (first: page 2)"
    scanned, whole = pdf_of(text_lines("babo gigo"), []), pdf_of(text_lines("babo gigo"))
    assert wait(server, upload(server, "a.pdf", scanned, "/v1/documents").json())["warning"] == warning
    assert upload(server, "a.pdf", scanned).json()["warning"] == warning
    assert list(upload(server, "a.pdf", whole).json()) == ["translatedFileUrl"]


def test_a_document_in_the_target_language_needs_its_source_language(server: Server) -> None:
    text = "Das ist eine kleine Katze, und sie schläft heute den ganzen Tag in dem Haus.".encode()
    assert upload(server, "a.txt", text).status_code == 200
    refused = upload(server, "a.txt", text, source="auto")
    assert (refused.status_code, refused.json()["error"]) == (400, "the file is already in German (de)")


def test_texts_that_occur_several_times_are_translated_once(server: Server) -> None:
    before = sentences(server)
    cue = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n"
    text = "".join(cue.format(f"babo {'gigo ' * (number % 3)}") for number in range(300))
    answer = upload(server, "a.srt", text.encode())
    assert httpx.get(answer.json()["translatedFileUrl"]).text.count("-->") == 300
    assert sentences(server) - before == 3
    many = "".join(cue.format(f"a{number}") for number in range(101)).encode()
    message = "the file has 101 texts, more than the 100 allowed"
    assert upload(server, "a.srt", many).json()["error"] == message


def sentences(server: Server) -> float:
    """Number of sentences that the server has translated so far."""
    found = re.search(r"^\w*sentences_total (\S+)$", httpx.get(f"{server[0]}/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def test_only_the_newest_files_are_kept(server: Server) -> None:
    urls = [upload(server, "a.txt", b"babo").json()["translatedFileUrl"] for _ in range(3)]
    assert [httpx.get(url).status_code for url in urls] == [404, 200, 200]


@pytest.mark.parametrize(
    ("name", "data", "fields", "status", "message"),
    [
        ("a.pdf", b"%PDF", {}, 400, "a.pdf: damaged, or not a PDF file: "),
        ("a.rtf", b"{\\rtf1}", {}, 400, "files of this format are not translated; supported are .docx, .html"),
        ("a.docx", b"PK", {}, 400, "a.docx: damaged, or not a file of this format"),
        ("a.xliff", b'<!DOCTYPE a [<!ENTITY a "b">]><xliff/>', {}, 400, "a.xliff: XML that declares entities"),
        ("a.txt", b"babo", {"target": "xx"}, 400, "no model for this language pair"),
        ("a.txt", b"babo", {"target": ""}, 400, "target: a language code is required"),
        ("a.txt", b"babo " * 500, {}, 413, "the file has 2,499 characters, more than the 2,000 allowed"),
        ("a.txt", b" " * 200_001, {}, 413, "the body is larger than the 200,000 bytes allowed"),
    ],
)
def test_mistakes_are_named(
    server: Server, name: str, data: bytes, fields: dict[str, str], status: int, message: str
) -> None:
    answer = upload(server, name, data, **fields)
    assert (answer.status_code, answer.json()["error"][: len(message)]) == (status, message)


def test_a_form_without_a_file_is_refused(server: Server) -> None:
    answer = httpx.post(f"{server[0]}/translate_file", files={"other": ("a.txt", b"x")}, data=FIELDS)
    assert answer.json() == {"error": "file: a file with a name is required"}
    assert httpx.post(f"{server[0]}/translate_file", json=FIELDS).status_code == 415


def test_too_many_files_and_a_client_that_leaves(
    server: Server, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, original = threading.Event(), Translator.translation_searches

    def slow(self: Translator, *arguments: Any, **options: Any) -> Any:
        go_on.wait(TIMEOUT)
        return (yield from original(self, *arguments, **options))

    monkeypatch.setattr(Translator, "translation_searches", slow)
    left = httpx.Timeout(TIMEOUT, read=0.5)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server[0]}/translate_file", files={"file": ("a.txt", b"babo")}, data=FIELDS, timeout=left)
    first = upload(server, "a.txt", b"babo", "/v1/documents").json()  # the client that left does not count
    second = upload(server, "b.txt", b"gigo", "/v1/documents").json()
    refused = upload(server, "c.txt", b"dedu", "/v1/documents")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    go_on.set()
    assert wait(server, first)["state"] == wait(server, second)["state"] == "done"


def test_files_are_deleted_after_a_time(translator: Translator) -> None:
    with serve_in_thread([("en-de", translator)], kept_minutes=0.001) as server:
        url = upload(server, "a.txt", b"babo").json()["translatedFileUrl"]
        deadline = time.monotonic() + TIMEOUT
        with suppress(httpx.RemoteProtocolError):  # it was deleted between the header and the body of the response
            while httpx.get(url).status_code == 200 and time.monotonic() < deadline:
                time.sleep(0.05)
        assert httpx.get(url).status_code == 404


def test_a_key_is_required_if_there_are_keys(translator: Translator) -> None:
    with serve_in_thread([("en-de", translator)], keys=["secret"]) as server:
        assert upload(server, "a.txt", b"babo").status_code == 403
        assert upload(server, "a.txt", b"babo", api_key="secret").status_code == 200


def test_suggestions_become_training_data(transduce: Any, trained: Any, tmp_path: Path) -> None:
    file = tmp_path / "suggestions.jsonl"
    arguments = ["-m", f"en-de={trained.run}", "--suggestions", file, "--limit", "suggestion_bytes=100"]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        body = {"q": "babo", "s": "gü", "source": "en", "target": "de"}
        assert httpx.post(f"{server.address}/suggest", json=body).json() == {"success": True}
        assert httpx.post(f"{server.address}/suggest", data={**body, "s": "x" * 50}).json() == {"success": True}
        assert httpx.post(f"{server.address}/suggest", json=body).status_code == 403
        assert httpx.get(f"{server.address}/frontend/settings").json()["suggestions"]
    first, _ = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert first == {"src": "babo", "tgt": "gü", "source": "en", "target": "de"}
