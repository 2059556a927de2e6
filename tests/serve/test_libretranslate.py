"""LibreTranslate's interface."""

import re
from typing import Any

import httpx
import pytest
from serving import TEXTS, error_message, serve_in_thread

from transduce.translation.translator import Translator


def test_a_text_is_translated(client: httpx.Client, translator: Translator) -> None:
    body = {"q": TEXTS[0], "source": "en", "target": "de", "format": "text", "api_key": ""}
    expected = {"translatedText": translator.translate(TEXTS[0])}
    assert client.post("/translate", json=body).json() == expected
    assert client.post("/translate", data=body).json() == expected
    assert client.post("/translate", files={name: (None, value) for name, value in body.items()}).json() == expected


@pytest.mark.parametrize(("content", "status"), [("q=Müller, é &source=en&target=de".encode(), 200), (b"q=\xff", 400)])
def test_a_form_is_raw_or_percent_encoded_utf8(client: Any, content: bytes, status: int) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    response = client.post("/translate", content=content, headers=headers)
    assert response.status_code == status
    if status == 200:
        expected = client.post("/translate", json={"q": "Müller, é ", "source": "en", "target": "de"})
        assert response.json() == expected.json()


def test_a_list_of_texts_is_answered_with_a_list(client: httpx.Client, translator: Translator) -> None:
    response = client.post("/translate", json={"q": TEXTS, "source": "en", "target": "de"}).json()
    assert response == {"translatedText": translator.translate(TEXTS)}
    form = client.post("/translate", data={"q": TEXTS, "source": "en", "target": "de"}).json()
    assert form == response
    assert client.post("/translate", json={"q": [], "source": "en", "target": "de"}).json() == {"translatedText": []}


def test_lines_are_translated_separately(client: httpx.Client, translator: Translator) -> None:
    response = client.post("/translate", json={"q": "\n".join(TEXTS), "source": "en", "target": "toy"}).json()
    assert response["translatedText"].split("\n") == translator.translate(TEXTS)


def test_line_ends_are_kept(client: httpx.Client) -> None:
    text = f"{TEXTS[0]}\r\n\r\n{TEXTS[1]}\r\n"
    response = client.post("/translate", json={"q": text, "source": "en", "target": "toy"}).json()
    assert re.findall(r"\s+", response["translatedText"]) == ["\r\n\r\n", "\r\n"]


@pytest.mark.parametrize("format", ["text", "html"])
def test_a_nul_character_is_refused(client: httpx.Client, format: str) -> None:
    body = {"q": [TEXTS[0], "ba\0bo"], "source": "en", "target": "toy", "format": format}
    response = client.post("/translate", json=body)
    assert (response.status_code, response.json()) == (400, {"error": "texts[1] contains a NUL character; remove it"})


def test_alternatives_are_the_next_best_hypotheses(client: httpx.Client, translator: Translator) -> None:
    body = {"source": "en", "target": "de", "alternatives": 3}
    best = [[one.text for one in hypotheses] for hypotheses in translator.hypotheses(TEXTS[:2], nbest=4)]
    distinct = [list(dict.fromkeys(texts)) for texts in best]
    one = client.post("/translate", json={"q": TEXTS[0], **body}).json()
    assert one == {"translatedText": distinct[0][0], "alternatives": distinct[0][1:]}
    two = client.post("/translate", json={"q": TEXTS[:2], **body}).json()
    assert two["alternatives"] == [texts[1:] for texts in distinct]


def test_more_alternatives_than_the_beam_widen_the_beam(client: httpx.Client) -> None:
    body = {"q": TEXTS[0], "source": "en", "target": "de", "alternatives": 9}
    assert 4 < len(client.post("/translate", json=body).json()["alternatives"]) <= 9


def test_html_keeps_its_tags(client: httpx.Client, translator: Translator) -> None:
    body = {"q": "<p>babo <b>gibo</b></p>", "source": "en", "target": "de", "format": "html", "alternatives": 1}
    response = client.post("/translate", json=body).json()
    best, second = translator.hypotheses(["babo gibo"], nbest=2)[0]
    for output, translation in zip(
        [response["translatedText"], response["alternatives"][0]], [best, second], strict=True
    ):
        assert re.fullmatch(r"<p>.*<b>.*</b>.*</p>", output)
        assert re.sub(r"<.*?>", "", output) == translation.text


def test_only_texts_with_inline_tags_are_aligned(
    client: httpx.Client, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[str], bool]] = []
    original = Translator.translation_searches

    def record(self: Translator, texts: Any, found: Any, config: Any, align: bool, *more: Any) -> Any:
        calls.append(([self.tokenizer.decode(job.tokens) for jobs in texts for job in jobs], align))
        return original(self, texts, found, config, align, *more)

    monkeypatch.setattr(Translator, "translation_searches", record)
    body = {"q": ["<p>babo <b>gibo</b></p><p>dego</p>", "dedu"], "source": "en", "target": "de", "format": "html"}
    assert client.post("/translate", json=body).status_code == 200
    assert sorted(text for texts, align in calls if align for text in texts) == ["babo gibo"]
    assert sorted(text for texts, align in calls if not align for text in texts) == ["dedu", "dego"]


def test_the_source_language_may_be_auto(client: httpx.Client) -> None:
    response = client.post("/translate", json={"q": "babo", "source": "auto", "target": "de"}).json()
    assert response["detectedLanguage"]["language"] == "en"  # the only source language
    assert 0 <= response["detectedLanguage"]["confidence"] <= 100


def test_each_text_of_a_list_has_its_own_language(translator: Translator, trained: Any) -> None:
    english, german = "This is an English sentence.", "Das ist ein deutscher Satz."
    french = "Voici une phrase en français."
    models = [("en-de", translator), ("fr-de", Translator.load(trained.run, max_length=2))]
    with serve_in_thread(models) as (address, _):
        for form in ("text", "html"):
            mark = "<p class='the text with the words of the page'>{}</p>" if form == "html" else "{}"
            texts = [mark.format(text) for text in (french, german, english, french)]
            body = {"q": texts, "source": "auto", "target": "de", "format": form}
            answer = httpx.post(f"{address}/translate", json=body).json()
            assert [one["language"] for one in answer["detectedLanguage"]] == ["fr", "de", "en", "fr"]
            outputs = [models[1][1].translate(french), german, translator.translate(english)]
            assert answer["translatedText"] == [mark.format(output) for output in (*outputs, outputs[0])]
        one = httpx.post(f"{address}/translate", json={**body, "q": texts[2]}).json()
        assert one["detectedLanguage"]["language"] == "en"
        assert httpx.post(f"{address}/translate", json={**body, "q": []}).json()["translatedText"] == []


def test_the_languages_are_listed(client: httpx.Client) -> None:
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "auto", "name": "auto", "targets": ["toy"]},
        {"code": "de", "name": "German", "targets": []},
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"source": "en", "target": "de"}, "q: Field required"),
        ({"q": "babo", "target": "de"}, "source: Field required"),
        ({"q": 5, "source": "en", "target": "de"}, "q"),
        ({"q": "babo", "source": "en", "target": "de", "format": "pdf"}, "format: Input should be 'text' or 'html'"),
        ({"q": "babo", "source": "en", "target": "de", "alternatives": -1}, "alternatives: "),
        ({"q": "babo", "source": "en", "target": "de", "alternatives": 10**9}, "nbest must be at most 16"),
        ([], "Input should be"),
    ],
)
def test_an_invalid_libretranslate_request_is_answered_with_the_reason(
    client: httpx.Client, body: Any, message: str
) -> None:
    assert message in error_message(client.post("/translate", json=body), 400)


def test_an_unsupported_content_type_is_rejected(client: httpx.Client) -> None:
    assert "application/json" in error_message(client.post("/translate", content=b"q=babo"), 415)


def test_languages_without_a_model_are_rejected(guarded: httpx.Client) -> None:
    body = {"q": "babo", "source": "fr", "target": "de", "api_key": "friend"}
    assert "available: en to de" in error_message(guarded.post("/translate", json=body), 400)


def test_json_sent_as_a_form_is_refused_with_the_header_to_send(client: httpx.Client) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}  # as `curl -d` without -H
    response = client.post("/translate", content=b' {"q": "babo", "source": "en", "target": "toy"}', headers=headers)
    assert "Content-Type: application/json" in error_message(response, 415)
