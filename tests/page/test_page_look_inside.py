"""References, comparisons, the path, examples, links and files of the page, in Chromium."""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import small_model
from pages import (
    EXPERTS,
    TEXT,
    choose,
    expect,
    expect_state,
    fractions,
    serve_page,
    settled,
    slide,
    state,
    wait_for_value,
)

from transduce.inspect.heads import head_numbers
from transduce.inspect.inspection import Inspection, inspect_translation, score_reference
from transduce.inspect.page import self_contained
from transduce.inspect.request import HeadRequest, InspectionRequest
from transduce.inspect.serialize import serialize
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import EOS, Tokenizer
from transduce.translation.translator import Translator

# References, comparisons, the path, examples


def test_a_reference_shows_rank_and_probability_of_each_token(
    page: Any, inspection: Inspection, translator: Translator
) -> None:
    reference = "gigo babo dedu"
    page.get_by_label("Another translation of the sentence").fill(reference)
    expected = score_reference(translator, TEXT, reference)
    rows = page.locator("#reference-section tbody tr")
    expect(rows).to_have_count(len(expected))
    for row, token in zip(rows.all(), expected, strict=True):
        probability, rank = row.locator("td").all_inner_texts()[:2]
        assert int(rank.replace(",", "")) == token.rank
        assert float(probability.strip("% ")) / 100 == pytest.approx(math.exp(token.log_prob), rel=0.06)
    ids = [token.token for token in expected]
    apart = next(n for n, (a, b) in enumerate(zip(ids, inspection.target, strict=False)) if a != b)
    expect(page.locator("#reference-section .note")).to_contain_text(f"at token {apart + 1}:")


def test_two_sentences_are_compared(page: Any, translator: Translator) -> None:
    page.get_by_label("Sentence to compare with").fill("dego gigo")
    other = inspect_translation(translator, InspectionRequest(text="dego gigo"))
    expect(page.locator("#compare-section figure")).to_have_count(3)
    second = page.locator("[data-figure=compare-second]")
    expect(second.locator("h3")).to_have_text(translator.tokenizer.decode(other.best.tokens))
    expect(second.locator("svg .token")).to_have_count(len(other.source) + len(other.target))


def test_two_models_are_compared(
    open_page: Callable[..., Any], translator: Translator, toy_tokenizer: Tokenizer
) -> None:
    """The second model has fewer layers and heads than those chosen of the first."""
    small = small_model(5, toy_tokenizer.vocab_size, encoder_layers=1, decoder_layers=1, num_heads=2).eval()
    other = Translator(small, toy_tokenizer, config=SearchConfig(max_extra=3))
    expected = inspect_translation(other, InspectionRequest(text=TEXT))
    with serve_page(translator, other) as address:
        page = open_page(f"{address}#text={TEXT}&sentence=0&model=model&stack=encoder&layer=2&view=4&markers=true")
        expect(page.locator("main[aria-busy=false] #inspected")).to_have_count(1)
        page.locator("#compare-section select").select_option("model1")
        first, second = (page.locator(f"[data-figure=compare-{name}]") for name in ("first", "second"))
        expect(first.locator("figcaption p")).to_contain_text("Encoder, layer 2, head 4")
        expect(second.locator("figcaption p")).to_contain_text("Encoder, layer 1, head 2")
        expect(second.locator("h3")).to_have_text(toy_tokenizer.decode(expected.best.tokens))
        weight = float(expected.attention["encoder"][0, 1, 0, 0])

        def shown() -> list[float]:
            page.mouse.move(0, 0)  # again each time: tooltips are hidden while the page scrolls
            second.locator(".frame").hover(position={"x": 5, "y": 5})
            return fractions(page.locator(".tooltip .weight"))

        wait_for_value(page, shown, pytest.approx([weight], abs=0.006))
        expect(second.locator("svg .token")).to_have_count(2 * len(expected.source))


def test_the_path_shows_the_numbers_of_the_head(page: Any, inspection: Inspection, translator: Translator) -> None:
    choose(page, "view", 3)
    page.locator(".tokens.target button").nth(1).click()  # the query
    page.get_by_label("show numbers").check()
    request = HeadRequest(text=TEXT, head="cross.2.3", query=1, output=inspection.best.tokens)
    numbers = head_numbers(translator, request)
    assert numbers.weights == pytest.approx(inspection.attention["cross"][1, 2, 1].tolist(), abs=1e-3)
    words = [n for n, token in enumerate(inspection.source) if token > EOS]
    listed = sorted(sorted(words, key=lambda n: -numbers.weights[n])[:8])
    for column, expected in ((2, numbers.products), (4, [100 * weight for weight in numbers.weights])):
        cells = page.locator(f".path-numbers tbody tr td:nth-child({column + 1})")
        wait_for_value(
            page,
            lambda cells=cells: [float(text.replace("−", "-").rstrip(" %")) for text in cells.all_inner_texts()],
            pytest.approx([expected[n] for n in listed], abs=0.6 if column == 4 else 0.006),
        )


def test_the_path_is_played_paused_scrubbed_and_stepped(page: Any, inspection: Inspection) -> None:
    text, time = page.locator(".path-text"), page.get_by_role("slider", name="Time")
    next_, back = (page.get_by_role("button", name=name, exact=True) for name in ("Next", "Back"))
    expect(text).to_contain_text("7. Next word.")  # the whole picture
    next_.click()
    expect(text).to_contain_text(f"The text becomes {len(inspection.source)} tokens")
    expect(back).to_be_disabled()
    for name in ("Layers", "One head", "Query and keys", "Softmax", "Values", "Next word"):
        next_.click()
        expect(text).to_contain_text(f". {name}.")
    expect(time).to_have_js_property("value", "30")
    slide(time, 19)
    expect(text).to_contain_text("Softmax makes weights of it that sum to 100 %")
    back.click()
    expect(time).to_have_js_property("value", "17")
    slide(time, 28)  # with reduced motion, the stages are shown one after the other, and the last one at once
    page.locator("#path").get_by_role("button", name="Play").click()
    expect(time).to_have_js_property("value", "30")
    expect(page.locator("#path").get_by_role("button", name="Play")).to_be_visible()


def test_the_path_moves_and_stops(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(f"{address}#text={TEXT}&sentence=0", reduced_motion="no-preference")
    time = page.get_by_role("slider", name="Time")
    page.locator("#path").get_by_role("button", name="Play").click()
    wait_for_value(page, lambda: float(time.evaluate("e => e.value")) > 0.5, True)
    page.get_by_role("button", name="Pause").click()
    place = time.evaluate("e => e.value")
    page.wait_for_timeout(300)
    assert time.evaluate("e => e.value") == place


def test_an_example_opens_a_prepared_view(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(address)
    examples = page.locator(".examples button")
    expect(examples).to_have_count(5)
    examples.first.click()
    expect(page.locator("main[aria-busy=false] #inspected")).to_have_count(1)
    expect(page.locator("input[name=stack][value=encoder]")).to_be_checked()
    expect(page.locator("#text")).to_have_value(re.compile("^The animal"))
    expect(page.locator(".lines")).to_be_in_viewport()
    expect(examples.first).not_to_be_visible()
    page.locator(".examples summary").click()
    expect(examples.first).to_be_visible()


def test_a_sentence_begins_with_its_strongest_pair_of_words(
    open_page: Callable[..., Any], address: str, inspection: Inspection
) -> None:
    page = open_page(f"{address}#text={TEXT}&sentence=0")
    expect(page.locator(".lines .token").first).to_be_visible()
    expect(page.locator(".lines")).not_to_contain_text("⟨")
    found = re.fullmatch(
        r"Layer (\d), head (\d): when the model writes “.+”, it looks at “.+”: ([\d.]+)\s%\.",
        page.locator(".caption").inner_text(),
    )
    assert found
    layer, head = int(found[1]) - 1, int(found[2]) - 1
    assert float(found[3]) / 100 == pytest.approx(
        inspection.attention["cross"][layer, head, :-1, :-1].max().item(), abs=0.2
    )
    expect(page.locator(".thumbnail")).to_have_count(0)
    page.get_by_label("all heads").check()
    expect(page.locator(".thumbnail")).to_have_count(8)


# Links and files


def without_times(locator: Any) -> str:
    """The text of an element without durations in milliseconds."""
    return re.sub(r"\d+ ms", "", locator.text_content())


def test_a_view_is_restored_from_its_url(page: Any, open_page: Callable[..., Any]) -> None:
    choose(page, "stack", "decoder")
    choose(page, "layer", 1)
    choose(page, "view", 2)
    page.locator("[data-head='decoder.1.2']").click()
    page.locator(".tokens.target button").nth(1).click()
    slide(page.get_by_label("Length penalty"), 1.4)
    expect(page.locator(".ablation")).to_be_visible()  # the figures are drawn again before
    page.get_by_label("markers", exact=True).uncheck()
    page.get_by_role("button", name="theme: auto").click()
    expect_state(
        page, stack="decoder", layer="1", view="2", off="decoder.1.2", step="1", alpha="1.4", theme="light", pair="t1."
    )
    again = open_page(page.url)
    expect(again.locator(".ablation")).to_be_visible()
    wait_for_value(page, lambda: again.url, page.url)
    for part in (".sentence-bar", ".translation-panel", ".pair.attention", ".ranking", ".bars", ".ablation"):
        texts = [lambda part=part, window=one: without_times(window.locator(part)) for one in (page, again)]
        wait_for_value(page, lambda texts=texts: texts[0]() == texts[1](), True)
    wait_for_value(again, lambda: again.evaluate("document.documentElement.style.colorScheme"), "light")


@pytest.mark.parametrize(("stack", "view"), [("sideways", "99"), ("constructor", "toString")])
def test_invalid_url_parameters_are_ignored(
    open_page: Callable[..., Any], address: str, inspection: Inspection, translator: Translator, stack: str, view: str
) -> None:
    wrong = "prefix=&off=none&layer=77&step=999&temperature=x&alpha=&beam=-1&grown=0&theme=pink"
    page = open_page(f"{address}#text={TEXT}&sentence=0&{wrong}&stack={stack}&view={view}")
    settled(page, translator.tokenizer.decode(inspection.best.tokens))
    expect(page.locator("input[name=layer][value='2']")).to_be_checked()  # the last one
    expect(page.locator("input[name=view]:checked")).to_have_value(re.compile("^[1-4]$"))
    expect(page.locator(".node")).to_have_count(len(inspection.tree))


def test_figures_have_their_numbers_in_a_table(page: Any, inspection: Inspection) -> None:
    choose(page, "view", 1)
    for figure in page.locator("figure").all():
        figure.get_by_role("button", name="Data of").click()
        expect(figure.locator("table tbody tr").nth(1)).to_be_attached()
    table = page.locator("[data-figure$=-map] tbody tr")
    weights_TS = inspection.attention["cross"][1, 0]
    expect(table).to_have_count(len(inspection.target))
    expected = pytest.approx(weights_TS[1].tolist(), abs=0.0075)
    wait_for_value(page, lambda: fractions(table.nth(1).locator("td")), expected)


def test_figures_are_saved_as_svg_and_png(page: Any) -> None:
    expect(page.locator("figure")).to_have_count(7)
    figures = [figure.get_attribute("data-figure") for figure in page.locator("figure").all()]
    for name in figures:
        with page.expect_download() as saved:
            page.locator(f"[data-figure='{name}']").get_by_role("button", name="SVG").click()
        assert saved.value.suggested_filename == f"{name}.svg"
        root = ElementTree.parse(saved.value.path()).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in saved.value.path().read_text(encoding="utf-8")
    with page.expect_download() as saved:
        page.locator("[data-figure$=-map]").get_by_role("button", name="PNG").click()
    data = saved.value.path().read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20]) >= 600
    assert len(data) > 3000  # otherwise it would be empty


def test_the_self_contained_page_works_offline(
    open_page: Callable[..., Any], translator: Translator, inspection: Inspection, tmp_path: Path
) -> None:
    (tmp_path / "inspection.html").write_text(self_contained(serialize(inspection, translator)), encoding="utf-8")
    page = open_page(f"{(tmp_path / 'inspection.html').as_uri()}#{EXPERTS}", offline=True)
    settled(page, translator.tokenizer.decode(inspection.best.tokens))
    page.get_by_role("button", name="Show layer 1, head 2").click()
    slide(page.get_by_label("Length penalty"), 2)
    expect(page.locator(".node")).to_have_count(len(inspection.tree))
    expect(page.locator(".power:not([disabled])")).to_have_count(0)
    page.locator("[data-node='3']").click(force=True)
    expect(page.get_by_text("needs the model")).to_have_count(2)
    expect_state(page, alpha="2")
    assert "prefix" not in state(page)
