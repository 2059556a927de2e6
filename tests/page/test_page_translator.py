"""The translator of the page, in Chromium."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from document_samples.pdf import pdf_of, text_lines
from pages import PHONE, TEXT, expect, expect_state, serve_page, settled, sync_api, translated, wait_for_value

from transduce.inspect.inspection import inspect_translation
from transduce.inspect.request import InspectionRequest
from transduce.translation.translator import Translator

LETTER = "Dear Tom,\n\nThank you for your letter. The dog sleeps.\nWrite to tom@example.org."


def test_a_letter_is_translated_as_by_the_interface(open_page: Callable[..., Any], bundled_address: str) -> None:
    body = {"q": LETTER, "source": "en", "target": "de"}
    expected = httpx.post(f"{bundled_address}translate", json=body, timeout=60).json()["translatedText"]
    page = open_page(f"{bundled_address}#from=en&to=de")
    page.locator("#text").fill(LETTER)
    lines = page.locator("#translation[aria-busy=false] p")
    wait_for_value(page, lambda: [line.strip() for line in lines.all_inner_texts()], expected.split("\n"))
    expect(page.locator("#translation")).to_have_attribute("lang", "de")
    expect(page.locator("#text")).to_have_attribute("dir", "auto")


def test_the_text_is_translated_while_typing(page: Any, translator: Translator) -> None:
    page.locator("#text").press_sequentially(" dego")
    translated(page, translator.translate(TEXT + " dego"))
    settled(page, translator.translate(TEXT + " dego"))
    expect(page.locator(".tokens.source button")).to_have_count(len(translator.tokenizer.encode(TEXT + " dego")) + 1)
    page.get_by_role("button", name="Clear").click()
    translated(page, "")
    expect(page.locator("#look")).to_have_count(0)


def test_a_late_response_to_an_older_text_is_ignored(open_page: Any, address: str, translator: Translator) -> None:
    page = open_page(address)
    pending: list[Any] = []
    page.route("**/v1/translate", lambda route: pending.append(route))
    page.locator("#text").fill("babo")
    wait_for_value(page, lambda: len(pending), 1)
    page.unroute("**/v1/translate")
    page.locator("#text").fill("dedu gigo")
    translated(page, translator.translate("dedu gigo"))
    with contextlib.suppress(sync_api.Error):  # the page may have aborted the request already
        pending[0].continue_()
    page.wait_for_timeout(300)
    translated(page, translator.translate("dedu gigo"))


def test_languages_are_chosen_by_name_and_swapped(
    open_page: Callable[..., Any], bundled: Translator, bundled_address: str
) -> None:
    page = open_page(f"{bundled_address}#from=en")
    target = page.get_by_role("combobox", name="To", exact=True)
    expect(target).to_have_value("de")
    expect(target.locator("option")).to_have_text(["German", "French"])
    page.locator("#text").fill("The dog sleeps.")
    translated(page, bundled.translate("The dog sleeps.", to="de"))
    target.select_option("fr")
    french = bundled.translate("The dog sleeps.", to="fr")
    translated(page, french)
    expect_state(page, to="fr")
    page.get_by_role("button", name="Swap languages").click()
    translated(page, bundled.translate(french, to="en"))
    expect(page.locator("#text")).to_have_value(french)
    expect(page.get_by_role("combobox", name="From", exact=True)).to_have_value("fr")


def test_the_model_is_chosen_by_name(open_page: Callable[..., Any], address: str, bundled_address: str) -> None:
    page = open_page(f"{bundled_address}#from=en&text=Hello.")
    requests: list[dict[str, Any]] = []

    def record(request: Any) -> None:
        if request.url.endswith(("/v1/translate", "/inspect/look")):
            requests.append(request.post_data_json)

    page.on("request", record)
    page.get_by_role("combobox", name="Model").select_option("model1")
    page.locator("#text").fill("Good morning.")
    asked = [("Good morning.", "model1")]
    wait_for_value(page, lambda: [(one["text"], one["model"]) for one in requests[-1:]], asked)
    expect(page.locator("#translation[aria-busy=false]")).not_to_be_empty()
    page.get_by_role("button", name="Look inside").click()
    expect(page.locator("main[aria-busy=false] #inspected")).not_to_be_empty()
    assert requests[-1]["model"] == "model1"
    page.remove_listener("request", record)  # other tests use this window
    expect(open_page(address).get_by_role("combobox", name="Model")).to_have_count(0)


def test_an_alternative_for_a_word_continues_the_translation_from_there(
    open_page: Callable[..., Any], bundled: Translator, bundled_address: str
) -> None:
    source = "Thank you for your letter."
    page = open_page(f"{bundled_address}#from=en&to=de&text={source}")
    original = bundled.translate(source, to="de")
    translated(page, original)
    words = original.split()
    page.locator(".word", has_text=words[2]).click()
    choices = page.locator(".alternatives li button")
    expect(choices.first).to_be_focused()
    shares = [float(text.strip("<% ")) for text in page.locator(".alternatives .number").all_inner_texts()]
    assert shares == sorted(shares, reverse=True)
    assert min(shares) >= 1  # per cent
    expect(page.locator(".preview")).to_have_text(original)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".preview")).not_to_have_text(original)
    chosen = page.locator(".preview").inner_text()
    assert chosen.split()[:2] == words[:2] != chosen.split()[:3]
    page.keyboard.press("Enter")
    translated(page, chosen)
    expect(page.locator(".words")).to_be_focused()
    page.get_by_role("button", name="Look inside").click()
    settled(page, chosen)
    forced = chosen.split()[2]
    expect(page.locator(".constraint")).to_contain_text(forced)
    page.get_by_role("button", name="Undo").click()
    translated(page, original)


def test_alternatives_near_the_lower_edge_are_in_the_window(
    open_page: Callable[..., Any], bundled_address: str
) -> None:
    text = "%0A".join(["The dog sleeps."] * 14)
    page = open_page(f"{bundled_address}#from=en&to=de&text={text}", viewport={"width": 1280, "height": 720})
    expect(page.locator("#translation[aria-busy=false] .sentence")).to_have_count(14)
    page.locator(".word").last.click()
    expect(page.locator(".alternatives li button").first).to_be_visible()
    for part in (".alternatives-head", ".alternatives > .look"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)
    expect(page.locator(".word").last).to_be_in_viewport(ratio=1)


def test_words_of_which_the_model_is_unsure_are_shaded(open_page: Callable[..., Any], bundled_address: str) -> None:
    body = {"text": "She gave him a strange look.", "to": "de", "sentences": True, "confidence": "words"}
    answer = httpx.post(f"{bundled_address}v1/translate", json=body, timeout=60).json()
    (sentence,) = answer["translations"][0]["sentences"]
    page = open_page(f"{bundled_address}#from=en&to=de&text={body['text']}")
    translated(page, sentence["text"])
    for word, probability in zip(page.locator(".word").all(), sentence["word_confidences"], strict=True):
        shade = "" if probability >= 0.5 else "unsure" if probability >= 0.2 else "doubtful"
        expect(word).to_have_class(re.compile(rf"^word\s*{shade}\s*$"))
    expect(page.locator(".word.unsure, .word.doubtful").first).to_be_attached()
    page.get_by_label("mark unsure words").uncheck()
    expect(page.locator(".word.unsure, .word.doubtful")).to_have_count(0)


def test_look_inside_shows_the_sentence_that_was_clicked(
    open_page: Callable[..., Any], bundled: Translator, bundled_address: str
) -> None:
    page = open_page(f"{bundled_address}#from=en&to=de")
    page.locator("#text").fill(LETTER)
    expect(page.locator("#translation[aria-busy=false] .sentence")).to_have_count(4)
    page.locator(".sentence").nth(2).locator(".word").first.click()
    page.get_by_role("button", name="Look inside this sentence").click()
    inspected = inspect_translation(bundled, InspectionRequest(text="The dog sleeps.", to="de"))
    settled(page, bundled.tokenizer.decode(inspected.best.tokens))
    expect(page.locator("#look-title")).to_be_in_viewport()
    page.locator("#search").scroll_into_view_if_needed()
    expect(page.locator("#look-title")).not_to_be_in_viewport()
    page.get_by_role("button", name="Next sentence").click()
    expect(page.locator("main[aria-busy=false] #inspected")).to_contain_text("tom@example.org")
    expect(page.locator("#look-title")).not_to_be_in_viewport()  # the place in the page stays
    expect(page.locator(".tokens.source")).to_contain_text("tom@example.org")


def test_a_direction_that_did_not_happen_is_never_shown(
    open_page: Callable[..., Any], bundled: Translator, bundled_address: str
) -> None:
    page = open_page(f"{bundled_address}#to=de&model=model")
    source = page.get_by_role("combobox", name="From", exact=True)

    def directions() -> list[str]:
        chosen = source.evaluate("e => e.selectedOptions[0].textContent")
        return [chosen, *page.locator(".languages .language").all_inner_texts()]

    french = "Les enfants jouent dans le jardin."
    page.locator("#text").fill(french)
    translated(page, bundled.translate(french, to="en"))
    assert directions() == ["French (detected)", "English"]
    expect(page.locator(".remark")).to_have_text("French to German is not available.")
    page.get_by_role("button", name="Clear").click()
    wait_for_value(page, lambda: directions()[0], "Detect language")
    page.locator("#text").fill("hello")  # too short to tell its language
    translated(page, bundled.translate("hello", to="de"))
    assert directions() == ["Detect language"]
    expect(page.get_by_role("combobox", name="To", exact=True)).to_have_value("de")
    expect(page.locator(".remark")).to_have_text("")
    for text, name in (
        ("これは日本語の文章です。", "Japanese"),
        ("هذا نص باللغة العربية", "Arabic"),
        ("¿Cómo estás?", "Spanish"),
    ):
        page.locator("#text").fill(text)
        sentence = f"{name} is not available: this server translates from English, German, and French."
        translated(page, sentence)
        assert directions()[0] == f"{name} (detected)"
        expect(page.get_by_role("button", name="Copy", exact=True)).to_be_disabled()
    source.select_option("en")
    page.locator("#text").fill(french)
    page.get_by_role("button", name="Detect the language").click()
    translated(page, bundled.translate(french, to="en"))


LIT = "all => all.map((one) => one.textContent)"


def test_words_light_the_words_that_they_come_from(open_page: Callable[..., Any], bundled_address: str) -> None:
    text = "Thank you for your letter. The dog sleeps."
    page = open_page(f"{bundled_address}#from=en&to=de&text={text}")
    expect(page.locator("#translation[aria-busy=false] .word").first).to_be_visible()
    lit = {side: page.locator(f"{where} .lit") for side, where in (("source", ".text-marks"), ("target", ".words"))}

    def expect_lit(source: str, target: str) -> None:
        wait_for_value(page, lambda: lit["source"].evaluate_all(LIT), [source])
        wait_for_value(page, lambda: lit["target"].evaluate_all(LIT), [target])

    page.locator(".word", has_text="Hund").hover()
    expect_lit("dog", "Hund")
    mark = page.locator(".text-marks span", has_text="letter").bounding_box()
    page.mouse.move(mark["x"] + 5, mark["y"] + 8)
    expect_lit("letter.", "Brief.")
    page.mouse.move(0, 0)
    expect(page.locator(".lit")).to_have_count(0)
    page.locator("#text").focus()
    page.locator("#text").evaluate(f"e => e.setSelectionRange({text.index('dog')}, {text.index('dog')})")
    page.keyboard.press("Shift")  # a key moves the caret, or not
    expect_lit("dog", "Hund")
    page.locator(".words").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect_lit("dog", "Hund")
    expect(page.locator(".words [role=status]")).to_have_text(re.compile("^Hund"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Alternatives for “Hund”")).to_be_visible()


def test_the_translation_is_text_that_can_be_selected(open_page: Callable[..., Any], bundled_address: str) -> None:
    page = open_page(f"{bundled_address}#from=en&to=de&text=The dog sleeps.")
    expect(page.locator("#translation[aria-busy=false] .word")).to_have_count(3)
    expect(page.locator("#translation button, #translation [role=button]")).to_have_count(0)
    first, last = (page.locator(".word").nth(n).bounding_box() for n in (0, 2))
    page.mouse.move(first["x"] + 1, first["y"] + 10)
    page.mouse.down()
    page.mouse.move(last["x"] + last["width"] - 1, last["y"] + 10, steps=5)
    page.mouse.up()
    assert page.evaluate("getSelection().toString()").startswith(page.locator("#translation").inner_text()[:8])
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_word_that_seems_to_be_missing_is_marked_when_the_text_stays_the_same(
    open_page: Callable[..., Any], address: str
) -> None:
    sentence = {
        "line": 0,
        "source": "A technician sleeps.",
        "text": "Er schläft.",
        "after": "",
        "word_confidences": [1, 1],
    }
    sentence["aligned"] = [[[0, 1], [0, 2]], [[13, 20], [3, 11]]]

    def answer(route: Any) -> None:
        tested = {"uncovered": ["technician"]} if route.request.post_data_json.get("coverage") else {}
        data = {"text": 0, "line": 0, "source_tokens": [], "outputs": [], "sentences": [{**sentence, **tested}]}
        events = f"event: sentence\ndata: {json.dumps(data)}\n\nevent: done\ndata: {{}}\n\n"
        route.fulfill(body=events, content_type="text/event-stream")

    page = open_page(address)
    page.route("**/v1/translate", answer)
    page.locator("#text").fill("A technician sleeps.")
    expect(page.locator(".text-marks .missing")).to_have_text("technician")
    expect(page.locator(".remarks")).to_contain_text("technician may be missing")


def test_a_failed_translation_is_tried_again(
    open_page: Callable[..., Any], address: str, translator: Translator
) -> None:
    page = open_page(address)
    page.route("**/v1/translate", lambda route: route.fulfill(status=400, json={"error": "it failed"}))
    page.locator("#text").fill(TEXT)
    expect(page.locator(".box.target .error")).to_contain_text("it failed")
    page.unroute("**/v1/translate")
    page.get_by_role("button", name="Try again").click()
    translated(page, translator.translate(TEXT))


def test_several_files_are_translated_and_formats_are_listed(
    open_page: Callable[..., Any], bundled: Translator, bundled_address: str
) -> None:
    page = open_page(f"{bundled_address}#from=en&to=de")
    files = [
        {"name": "a.pptx", "mimeType": "application/octet-stream", "buffer": b"PK\x00\xff"},
        {"name": "b.txt", "mimeType": "text/plain", "buffer": b"The dog sleeps."},
        {"name": "c.html", "mimeType": "text/html", "buffer": b"<p>Hello.</p>"},
    ]
    page.locator("input[type=file]").set_input_files(files)
    expect(page.locator(".file-job .error")).to_contain_text("supported are text in UTF-8 and .docx, .html")
    expect(page.get_by_role("link", name="Save the translation")).to_have_count(2)
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save the translation").first.click()
    assert saved.value.path().read_text(encoding="utf-8") == bundled.translate("The dog sleeps.", to="de")
    expect(page.locator("#text")).to_have_value("")


def test_a_phone_is_not_asked_to_drop_files(open_page: Callable[..., Any], address: str) -> None:
    for window, drops in ((PHONE, False), ({}, True)):
        placeholder = open_page(address, **window).locator("#text").get_attribute("placeholder")
        assert ("drop" in placeholder) == drops


def test_a_key_is_asked_for_and_used(open_page: Callable[..., Any], translator: Translator) -> None:
    with serve_page(translator, keys=["secret"]) as address:
        page = open_page(f"{address}#text={TEXT}&sentence=0")
        expect(page.get_by_role("alert").first).to_have_text("an API key is required")
        page.get_by_label("API key").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert").first).to_have_text("invalid API key")
        page.get_by_label("API key").fill("secret")
        page.keyboard.press("Enter")
        translated(page, translator.translate(TEXT))
        settled(page, translator.translate(TEXT))
        expect(page.get_by_label("API key")).to_have_count(0)
        assert "secret" not in page.url


def test_a_busy_server_is_asked_again(open_page: Callable[..., Any], address: str, translator: Translator) -> None:
    page = open_page(address)
    refused: list[Any] = []

    def refuse_twice(route: Any) -> None:
        if len(refused) < 2:
            refused.append(route)
            route.fulfill(status=503, json={"error": "the server is busy"}, headers={"retry-after": "0"})
        else:
            route.continue_()

    page.route("**/v1/translate", refuse_twice)
    page.locator("#text").fill(TEXT)
    expect(page.locator(".waiting")).to_contain_text("the server is busy; trying again in 1 s")
    translated(page, translator.translate(TEXT))
    assert len(refused) == 2
    expect(page.locator(".waiting")).to_have_count(0)


def test_an_error_replaces_the_old_translation_and_its_figures(page: Any) -> None:
    page.route("**/v1/translate", lambda route: route.fulfill(status=400, json={"error": "it cannot be translated"}))
    page.locator("#text").fill("gigo")
    expect(page.locator(".box.target .error")).to_contain_text("it cannot be translated")
    for part in (".tokens", "svg.figure", ".word"):
        expect(page.locator(part)).to_have_count(0)


def test_an_inspection_error_leaves_the_translation(open_page: Any, address: str, translator: Translator) -> None:
    page = open_page(f"{address}#text={TEXT}&sentence=0&off=cross.9.9")
    expect(page.locator("#look .error")).to_contain_text("layers 1 to 2")
    translated(page, translator.translate(TEXT))
    expect(page.locator("svg.figure")).to_have_count(0)


def test_a_long_text_is_translated_and_every_sentence_inspected(
    open_page: Callable[..., Any], bundled: Translator, bundled_address: str
) -> None:
    sentence = "The old dog sleeps in the green garden."
    page = open_page(f"{bundled_address}#from=en&to=de&sentence=15")
    page.locator("#text").fill(" ".join([sentence] * 16))  # more tokens than the model takes at once
    expect(page.locator("#translation[aria-busy=false] .sentence")).to_have_count(16)
    settled(page, bundled.translate(sentence, to="de"))


def test_a_text_file_fills_the_box_and_a_long_one_is_saved(
    open_page: Callable[..., Any], translator: Translator, tmp_path: Path
) -> None:
    short, long = tmp_path / "short.txt", tmp_path / "long.txt"
    short.write_text(TEXT, encoding="utf-8")
    lines = ["babo gigo"] * 40
    long.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with serve_page(translator, characters=200) as address:
        page = open_page(f"{address}#text={'babo%20' * 50}")
        expect(page.locator(".count")).to_contain_text("250 / 200")
        expect(page.get_by_role("alert")).to_contain_text("250 characters are too many: at most 200")
        page.locator("input[type=file]").set_input_files(short)
        translated(page, translator.translate(TEXT))
        page.locator("input[type=file]").set_input_files(long)
        with page.expect_download() as saved:
            page.get_by_role("link", name="Save the translation").click()
        assert saved.value.suggested_filename == "long.translated.txt"
        assert (
            saved.value.path().read_text(encoding="utf-8") == "\n".join([translator.translate("babo gigo")] * 40) + "\n"
        )


def test_a_file_is_dropped_anywhere_on_the_page(
    open_page: Callable[..., Any], address: str, translator: Translator
) -> None:
    page = open_page(address)
    make = "text => { const d = new DataTransfer(); d.items.add(new File([text], 'a.txt')); return d; }"
    data = page.evaluate_handle(make, TEXT)
    page.locator("footer").dispatch_event("dragover", {"dataTransfer": data})
    expect(page.locator(".boxes.over")).to_have_count(1)
    page.locator("footer").dispatch_event("drop", {"dataTransfer": data})
    expect(page.locator(".boxes.over")).to_have_count(0)
    translated(page, translator.translate(TEXT))


RUNNING_AT_FIRST = """() => {
  const ask = window.fetch;
  window.fetch = async (path, options) => {
    const response = await ask(path, options);
    if (!path.endsWith("v1/documents")) return response;
    return Response.json({ ...(await response.json()), state: "running" }, { status: response.status });
  };
}"""
"""Lets the page believe that a document was not yet translated when the server answered; a short one may be."""


def test_a_document_is_translated_with_progress(
    open_page: Callable[..., Any], bundled: Translator, bundled_address: str, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text("<p>The dog sleeps.</p>\n<p>Hello.</p>", encoding="utf-8")
    page = open_page(f"{bundled_address}#from=en&to=de")
    asked: list[Any] = []
    released: list[bool] = []

    def answer(route: Any) -> None:
        asked.append(route)
        if len(asked) == 1:
            running = {"id": route.request.url.rpartition("/")[2], "state": "running", "done": 1, "total": 4}
            route.fulfill(json=running)
        elif released:
            route.continue_()

    page.evaluate(RUNNING_AT_FIRST)
    page.route("**/v1/documents/*", answer)
    page.locator("input[type=file]").set_input_files(tmp_path / "page.html")
    wait_for_value(page, lambda: len(asked), 2)
    expect(page.get_by_role("progressbar")).to_have_js_property("value", 0.25)
    released.append(True)
    asked[1].continue_()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save the translation").click()
    assert saved.value.suggested_filename == "page.de.html"
    lines = [f"<p>{bundled.translate(text, to='de')}</p>" for text in ("The dog sleeps.", "Hello.")]
    assert saved.value.path().read_text(encoding="utf-8") == "\n".join(lines)


def test_what_the_translation_of_a_document_lacks_is_shown(
    open_page: Callable[..., Any], bundled_address: str, tmp_path: Path
) -> None:
    (tmp_path / "scan.pdf").write_bytes(pdf_of(text_lines("The dog sleeps."), []))
    page = open_page(f"{bundled_address}#from=en&to=de")
    page.locator("input[type=file]").set_input_files(tmp_path / "scan.pdf")
    expect(page.get_by_role("link", name="Save the translation")).to_be_visible()
    expect(page.locator(".file-job .note")).to_have_text("scan.pdf: no text on 1 of 2 pages (first: page 2)")


@pytest.mark.parametrize("state", ["stopped", "refused"])
def test_a_document_that_is_not_translated_leaves_nothing(
    open_page: Callable[..., Any], bundled_address: str, tmp_path: Path, state: str
) -> None:
    (tmp_path / "letter.docx").write_bytes(b"no document")
    page = open_page(f"{bundled_address}#from=en&to=de")
    running = {"id": "name", "state": "running", "done": 0, "total": 4, "error": None}
    if state == "stopped":
        page.route("**/v1/documents", lambda route: route.fulfill(status=202, json=running))
        page.route("**/v1/documents/name", lambda route: route.fulfill(json=running))
    page.locator("input[type=file]").set_input_files(tmp_path / "letter.docx")
    if state == "stopped":
        expect(page.get_by_role("progressbar")).to_have_js_property("value", 0)
        with page.expect_request(lambda request: request.method == "DELETE"):
            page.get_by_role("button", name="Stop").click()
    else:
        expect(page.locator(".file-job .error")).to_contain_text("it is not a zip archive")
        page.get_by_role("button", name="Close").click()
    expect(page.locator(".file-job")).to_have_count(0)


def test_the_translation_is_copied_without_a_clipboard(open_page: Callable[..., Any], page: Any) -> None:
    """Browsers hide the clipboard from pages that another machine serves without TLS."""
    page.evaluate("Object.defineProperty(Navigator.prototype, 'clipboard', { value: undefined })")
    translation = page.locator("#translation").inner_text().strip()
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("button", name="Copied")).to_be_focused()
    page.locator("#text").fill("")
    page.keyboard.press("ControlOrMeta+v")
    expect(page.locator("#text")).to_have_value(translation)


def test_the_translation_is_copied_and_its_length_is_counted(page: Any, translator: Translator) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.locator(".count")).to_contain_text(f"{len(TEXT)} / 20,000")
    page.get_by_role("button", name="Copy", exact=True).click()
    page.wait_for_function(
        "text => navigator.clipboard.readText().then((copy) => copy === text)", arg=translator.translate(TEXT)
    )
