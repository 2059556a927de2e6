"""Existing clients of LibreTranslate's interface, unchanged, and HTTP clients that offer to upgrade to HTTP/2."""

import functools
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import TIMEOUT, host_and_port, serve_in_thread

from transduce.translation.translator import Translator

TEXT = "dego gidu"
GERMAN = "Das ist ein deutscher Satz."
LANGUAGES = [{"code": "en", "name": "English", "targets": ["de"]}, {"code": "de", "name": "German", "targets": []}]
FIELDS = {"q": TEXT, "source": "en", "target": "de"}
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
JAVA = """
import java.net.URI;
import java.net.http.*;

public class Client {
    public static void main(String[] args) throws Exception {
        var client = HttpClient.newHttpClient();  // it prefers HTTP/2
        for (int i = 0; i < 2; i++) {
            var body = HttpRequest.BodyPublishers.ofString(args[1]);
            var request = HttpRequest.newBuilder(URI.create(args[0] + "/translate"))
                .header("Content-Type", "application/json").POST(body).build();
            var response = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(response.body());
        }
    }
}
"""

post = functools.partial(httpx.post, timeout=TIMEOUT)
get = functools.partial(httpx.get, timeout=TIMEOUT)


@pytest.fixture(scope="module")
def translator(trained: Any) -> Translator:
    return Translator.load(trained.run)


@pytest.fixture(scope="module")
def address(translator: Translator) -> Iterator[str]:
    with serve_in_thread([("en-de", translator)], keys=["secret"]) as (address, _):
        yield address


@pytest.fixture(scope="module")
def open_address(translator: Translator) -> Iterator[str]:
    with serve_in_thread([("en-de", translator)]) as (address, _):
        yield address


def converse(address: str, *parts: bytes) -> list[bytes]:
    """Send parts, the last of which asks the server to close the connection; returns the bodies of the responses."""
    with socket.create_connection(host_and_port(address), timeout=TIMEOUT) as connection:
        for part in parts:
            connection.sendall(part)
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    bodies = []
    while received:
        header, _, rest = received.partition(b"\r\n\r\n")
        length = next(line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        size = int(length.split(b":")[1])
        bodies.append(rest[:size])
        received = rest[size:]
    return bodies


def request(body: bytes, *, chunked: bool = False) -> tuple[bytes, bytes]:
    """The header and the body of a request that offers to upgrade."""
    size = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    kind = b"Content-Type: application/json"
    header = b"\r\n".join([b"POST /translate HTTP/1.1", b"Host: localhost", kind, size, UPGRADE, b""])
    return header, b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body


# HTTP/2 clients


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("separately", [False, True])
def test_an_offer_to_upgrade_does_not_lose_the_body(
    open_address: str, translator: Translator, chunked: bool, separately: bool
) -> None:
    parts = request(json.dumps(FIELDS).encode(), chunked=chunked)
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    get = b"GET /ready HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + b"\r\n"
    sent = [*parts, get, *parts, last]
    first, ready, second, health = converse(open_address, *(sent if separately else [b"".join(sent)]))
    assert json.loads(first) == json.loads(second) == {"translatedText": translator.translate(TEXT)}
    assert (json.loads(ready), json.loads(health)) == ({"status": "ready"}, {"status": "ok"})


def test_curl_with_http2_gets_its_translation(open_address: str, translator: Translator) -> None:
    curl = shutil.which("curl")
    if not curl or b"HTTP2" not in subprocess.check_output([curl, "--version"]):
        pytest.skip("needs curl with HTTP/2")
    form = [word for name, value in FIELDS.items() for word in ("--data-urlencode", f"{name}={value}")]
    command = [curl, "--silent", "--http2", "--max-time", str(TIMEOUT), *form, f"{open_address}/translate"]
    assert json.loads(subprocess.check_output(command)) == {"translatedText": translator.translate(TEXT)}


def test_the_default_client_of_java_gets_its_translation(
    open_address: str, translator: Translator, tmp_path: Path
) -> None:
    if not (shutil.which("java") and shutil.which("javac")):
        pytest.skip("needs a JDK")
    (tmp_path / "Client.java").write_text(JAVA)
    command = ["java", tmp_path / "Client.java", open_address, json.dumps(FIELDS)]
    lines = subprocess.check_output(command, timeout=TIMEOUT, text=True, encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"translatedText": translator.translate(TEXT)}] * 2


# Python packages


def test_deep_translator(address: str, translator: Translator) -> None:
    library = pytest.importorskip("deep_translator", reason="needs deep-translator")
    client = library.LibreTranslator(source="en", target="de", custom_url=f"{address}/", api_key="secret")
    assert client.translate(TEXT) == translator.translate(TEXT)
    assert client.translate_batch([TEXT, "bago"]) == translator.translate([TEXT, "bago"])


def test_libretranslatepy(address: str, translator: Translator) -> None:
    library = pytest.importorskip("libretranslatepy", reason="needs libretranslatepy")
    client = library.LibreTranslateAPI(address, api_key="secret")
    assert client.translate(TEXT, "en", "de") == translator.translate(TEXT)
    assert client.languages() == LANGUAGES
    assert client.detect("Das ist ein deutscher Satz.")[0]["language"] == "de"
    assert client.detect("This is an English sentence.")[0]["language"] == "en"
    assert client.translate(TEXT, "auto", "de") == translator.translate(TEXT)
    assert client.translate(GERMAN, "auto", "de") == GERMAN


def test_a_file_as_the_front_end_sends_it(address: str, translator: Translator) -> None:
    data = {"source": "auto", "target": "de", "api_key": "secret"}
    answer = post(f"{address}/translate_file", files={"file": ("a b.txt", f"{TEXT}\n".encode())}, data=data)
    download = get(answer.json()["translatedFileUrl"])
    assert download.text == f"{translator.translate(TEXT)}\n"
    assert download.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20b.de.txt"
    settings = get(f"{address}/frontend/settings").json()
    assert settings["filesTranslation"]
    assert {".docx", ".odt", ".txt"} <= {*settings["supportedFilesFormat"]}


def test_texts_as_the_front_end_sends_them(translator: Translator, tmp_path: Path) -> None:
    suggestions = tmp_path / "suggestions.jsonl"
    with serve_in_thread([("en-de", translator)], suggestions=suggestions) as (address, _):
        settings = get(f"{address}/frontend/settings").json()
        codes = [language["code"] for language in get(f"{address}/languages").json()]
        source, target = (settings["language"][side]["code"] for side in ("source", "target"))
        assert {source, target} <= {*codes}
        assert settings["suggestions"]

        def send(path: str, **fields: str) -> httpx.Response:
            form = {name: (None, value) for name, value in {**fields, "api_key": ""}.items()}
            return post(f"{address}{path}", files=form)  # multipart, as FormData is sent

        texts = {"format": "text", "alternatives": "3", "secret": ""}
        answer = send("/translate", q=TEXT, source=source, target=target, **texts).json()
        assert answer["translatedText"] == translator.translate(TEXT)
        assert len(answer["alternatives"]) <= 3
        answer = send("/translate", q=TEXT, source="auto", target=target, **texts).json()
        assert {"language", "confidence"} == answer["detectedLanguage"].keys()
        answer = send("/translate", q=GERMAN, source="auto", target="de", **texts).json()
        assert (answer["translatedText"], answer["alternatives"]) == (GERMAN, [])
        assert answer["detectedLanguage"]["language"] == "de"
        assert send("/translate", q=GERMAN, source="de", target="de", **texts).json()["translatedText"] == GERMAN
        assert send("/suggest", q=TEXT, s="besser", source=source, target=target).json() == {"success": True}
        record = {"src": TEXT, "tgt": "besser", "source": source, "target": target}
        assert json.loads(suggestions.read_text(encoding="utf-8")) == record


def test_a_file_in_the_target_language_is_refused(open_address: str) -> None:
    file = {"file": ("a.txt", GERMAN.encode())}
    answer = post(f"{open_address}/translate_file", files=file, data={"source": "auto", "target": "de"})
    assert (answer.status_code, answer.json()["error"]) == (400, "the file is already in German (de)")


def test_suggestions_are_refused_without_a_file_for_them(address: str) -> None:
    body = {**FIELDS, "s": "besser", "api_key": "secret"}
    answer = post(f"{address}/suggest", data=body)
    assert (answer.status_code, answer.json()["error"][:33]) == (403, "this server accepts no suggestion")
    assert not get(f"{address}/frontend/settings").json()["suggestions"]


# The same requests without the packages


def test_fields_may_be_in_the_query_string(address: str, translator: Translator) -> None:
    answer = post(f"{address}/translate", params={**FIELDS, "api_key": "secret"})
    assert answer.json() == {"translatedText": translator.translate(TEXT)}
    assert post(f"{address}/translate", params=FIELDS).status_code == 403
    assert post(f"{address}/translate").status_code == 415
    plain = {"content-type": "text/plain"}
    assert post(f"{address}/translate", params=FIELDS, content=b"text", headers=plain).status_code == 415
    assert post(f"{address}/translate?q=%ff").status_code == 400


def test_languages_may_be_requested_by_post(address: str) -> None:
    posted = post(f"{address}/languages", data={"api_key": "secret"})
    assert posted.json() == get(f"{address}/languages").json() == LANGUAGES


@pytest.mark.parametrize("sent", [{"data": {"q": GERMAN}}, {"json": {"q": [GERMAN]}}, {"params": {"q": GERMAN}}])
def test_detection_answers_with_the_languages_of_the_models(open_address: str, sent: dict[str, Any]) -> None:
    best, *others = post(f"{open_address}/detect", **sent).json()
    assert best["language"] == "de"
    assert 50 < best["confidence"] <= 100
    assert {one["language"] for one in others} <= {"en"}


def test_a_text_without_letters_has_no_detected_language(open_address: str) -> None:
    answer = post(f"{open_address}/detect", json={"q": "12 %"}).json()
    assert answer == [{"language": "en", "confidence": 0.0}]


def test_detection_needs_a_text_and_a_key(address: str) -> None:
    assert post(f"{address}/detect", json={"q": TEXT}).status_code == 403
    assert post(f"{address}/detect", json={"api_key": "secret"}).status_code == 400


def test_settings_for_pages(address: str, open_address: str) -> None:
    settings = get(f"{address}/frontend/settings").json()
    assert (settings["apiKeys"], settings["keyRequired"], settings["charLimit"]) == (True, True, 20_000)
    assert settings["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "de", "name": "German"},
    }
    assert get(f"{open_address}/frontend/settings").json()["keyRequired"] is False
