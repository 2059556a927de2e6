"""Pins, questions, references, comparisons, the guided path, keyboard and lecture mode of the page, in Chromium."""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import small_model
from pages import (
    TEXT,
    accessibility_problems,
    choose,
    expect,
    expect_state,
    fractions,
    load_axe,
    serve_page,
    settled,
    slide,
    translated,
    wait_for_value,
)

from transduce.inspect.head_numbers import head_numbers
from transduce.inspect.inspection import Inspection, InspectionRequest, inspect_translation
from transduce.inspect.reference import score_reference
from transduce.inspect.request import HeadRequest
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import Tokenizer
from transduce.translator import Translator

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def click_cell(page: Any, row: int, column: int, rows: int, columns: int) -> None:
    """Click on a cell of the heat map."""
    frame = page.locator(".attention-section .heat .frame")
    frame.scroll_into_view_if_needed()
    box = frame.bounding_box()
    frame.click(position={"x": (column + 0.5) * box["width"] / columns, "y": (row + 0.5) * box["height"] / rows})


# Highlights


def test_a_token_of_the_encoder_lights_one_direction(page: Any, inspection: Inspection) -> None:
    choose(page, "stack", "encoder")
    choose(page, "view", 1)
    page.set_viewport_size({"width": 1280, "height": 2400})  # figures outside of the window are not drawn again
    page.locator(".tokens.source button").nth(1).hover()
    weights_SS = inspection.attention["encoder"][1, 0]
    drawn = int((torch.round(255 * weights_SS[1]) / 255 >= 0.03).sum())
    expect(page.locator(".lines .overlay .line")).to_have_count(drawn)
    expect(page.locator(".heat .mark:not([hidden])")).to_have_count(1)
    expect(page.locator(".lines .overlay .back")).to_have_count(1)


def test_a_click_pins_a_token_until_escape(page: Any) -> None:
    token = page.locator(".tokens.source button").nth(2)
    token.click()
    page.mouse.move(2, 2)
    expect(page.locator(".tokens .highlighted")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".tokens .highlighted")).to_have_count(0)
    token.click()
    token.click()
    page.mouse.move(2, 2)
    page.locator("#text").focus()
    expect(page.locator(".tokens .highlighted")).to_have_count(0)


@pytest.mark.parametrize(
    "selector", [".tokens.source button >> nth=1", ".lines .back >> nth=1"], ids=["token", "label"]
)
def test_the_first_tap_highlights(
    open_page: Callable[..., Any], address: str, inspection: Inspection, translator: Translator, selector: str
) -> None:
    page = open_page(f"{address}#text={TEXT}&sentence=0", **PHONE)
    settled(page, translator.tokenizer.decode(inspection.best.tokens))
    page.locator(selector).tap()
    page.locator(".tokens.source").scroll_into_view_if_needed()
    expect(page.locator(".tokens .highlighted")).to_have_count(1)


def test_heads_are_ranked_by_who_looks_from_one_token_to_another(page: Any, inspection: Inspection) -> None:
    T, S = len(inspection.target), len(inspection.source)
    click_cell(page, 2, 1, T, S)
    weights = (255 * inspection.attention["cross"][:, :, 2, 1]).round()  # as the page gets them
    ranked = sorted(((layer, head) for layer in range(2) for head in range(4)), key=lambda at: -weights[at].item())
    labels = [f"layer {layer + 1}, head {head + 1}" for layer, head in ranked]
    wait_for_value(
        page,
        lambda: page.locator(".thumbnail").evaluate_all("all => all.map((one) => one.ariaLabel)"),
        [f"Show {label}" for label in labels],
    )
    expect(page.locator(".who-list button")).to_have_count(5)
    names = page.locator(".who-list button").all_inner_texts()
    assert [name.split(" ")[1] + name.split(" ")[3] for name in names] == [f"{a + 1},{b + 1}" for a, b in ranked[:5]]
    page.locator(".who-list button").first.click()
    expect_state(page, view=str(ranked[0][1] + 1))
    choices = page.locator(".who select")
    for n, value in ((0, "2"), (1, "1")):
        expect(choices.nth(n)).to_have_value(value)
    choices.nth(1).select_option("0")
    expect(page.locator(".attention-section .heat .mark:not([hidden])")).to_have_count(2)


# Search and predictions


def test_the_growing_tree_stays_in_view(open_page: Callable[..., Any], address: str, translator: Translator) -> None:
    text = " ".join([TEXT] * 4)
    page = open_page(f"{address}#text={text}&sentence=0", viewport={"width": 600, "height": 900})
    settled(page, translator.translate(text))
    tree = page.locator("[data-figure=search-tree]")
    tree.scroll_into_view_if_needed()
    steps = int(page.get_by_label("Step").first.get_attribute("max"))
    scroll = tree.locator(".scroll")
    wait_for_value(page, lambda: scroll.evaluate("s => s.scrollWidth > 1.2 * s.clientWidth"), True)
    right = "s => Math.max(...[...s.querySelectorAll('.node')].map((n) => n.getBoundingClientRect().right))"
    inside = f"s => ({right})(s) <= s.getBoundingClientRect().right + 1"
    for step in (1, steps - 1, 2):
        slide(page.get_by_label("Step").first, step)
        expect_state(page, grown=str(step))
        wait_for_value(page, lambda: scroll.evaluate(inside), True)


def test_hypotheses_are_in_the_order_of_their_rank_for_screen_readers(page: Any) -> None:
    rows = page.locator(".ranks li")
    ranks = "all => all.map((one) => Number(one.dataset.rank))"
    tops = "all => all.map((one) => one.getBoundingClientRect().top)"
    ordered = f"all => ({tops})(all).every((top, n, tops) => !n || tops[n - 1] <= top)"
    for alpha in (-1.0, 3.0):
        slide(page.get_by_label("Length penalty"), alpha)
        expect_state(page, alpha=f"{alpha:g}")
        wait_for_value(page, lambda: rows.evaluate_all(ranks), list(range(1, rows.count() + 1)))
        wait_for_value(page, lambda: rows.evaluate_all(ordered), True)


def test_the_legend_of_the_maximum_names_the_heads(page: Any) -> None:
    expect(page.locator(".heat .scale").get_by_text("heads 1 to 4")).to_have_count(1)
    choose(page, "view", "mean")
    expect(page.locator(".heat .scale").get_by_text("heads 1 to 4")).to_have_count(0)


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


STUCK = """scroll => {
  scroll.scrollTo(60, 90);
  const box = (part) => scroll.querySelector(part).getBoundingClientRect();
  const [area, rows, columns, frame] = [scroll.getBoundingClientRect(), box(".rows"), box(".columns"), box(".frame")];
  const token = scroll.querySelectorAll(".columns .token")[12].getBoundingClientRect();
  return {
    scrolled: [scroll.scrollLeft, scroll.scrollTop],
    rows: rows.left === area.left && Math.abs(rows.top - frame.top) < 1,
    columns: columns.top === area.top && Math.abs(token.left - frame.left - 12.5 * frame.width / COLUMNS) < 12,
  };
}"""
"""Where the labels of a map are after it was scrolled."""


def test_labels_of_a_long_map_stay_in_view(open_page: Callable[..., Any], address: str, translator: Translator) -> None:
    text = " ".join([TEXT] * 7)
    page = open_page(f"{address}#text={text}&sentence=0&stack=encoder", viewport={"width": 390, "height": 500})
    settled(page, translator.translate(text))
    columns = len(translator.tokenizer.encode(text)) + 1
    expect(page.locator(".attention-section .heat .columns .token")).to_have_count(columns)
    scroll = page.locator(".attention-section .scroll:has(.heat)")
    measure = STUCK.replace("COLUMNS", str(columns))
    wait_for_value(page, lambda: scroll.evaluate(measure), {"scrolled": [60, 90], "rows": True, "columns": True})
    with page.expect_download() as saved:
        page.locator("[data-figure$=-map]").get_by_role("button", name="SVG").click()
    labels = [
        element.text for element in ElementTree.parse(saved.value.path()).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert labels[-columns:] == labels[-2 * columns : -columns]  # of the rows and, turned, of the columns


# References, comparisons, the guided path


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
    expect(page.locator("#compare-section figure")).to_have_count(2)
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
        page = open_page(f"{address}#text={TEXT}&sentence=0&model=model&stack=encoder&layer=2&view=4")
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


def test_the_guided_path_shows_the_numbers_of_the_head(
    page: Any, inspection: Inspection, translator: Translator
) -> None:
    choose(page, "view", 3)
    page.get_by_role("button", name="Guided path").click()
    page.get_by_role("button", name="Next", exact=True).click()
    request = HeadRequest(text=TEXT, head="cross.2.3", query=0, output=inspection.best.tokens)
    numbers = head_numbers(translator, request)
    assert numbers.weights == pytest.approx(inspection.attention["cross"][1, 2, 0].tolist(), abs=1e-3)
    products = page.locator(".guide-numbers tbody tr td:nth-child(3)")
    expect(products).to_have_count(min(8, len(inspection.source)))
    listed = sorted(sorted(range(len(numbers.weights)), key=lambda n: -numbers.weights[n])[:8])
    wait_for_value(
        page,
        lambda: [float(cell.replace("−", "-")) for cell in products.all_inner_texts()],
        pytest.approx([numbers.products[n] for n in listed], abs=0.006),
    )
    expect(page.locator(".diagram .here")).to_have_text("cross-attention")
    for _ in range(4):
        page.get_by_role("button", name="Next", exact=True).click()
    expect(page.locator(".diagram .here")).to_have_text("softmax")


def test_an_example_opens_a_prepared_view(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(address)
    examples = page.locator(".examples button")
    expect(examples).to_have_count(5)
    examples.nth(3).click()
    expect(page.locator("main[aria-busy=false] #inspected")).to_have_count(1)
    expect(page.locator("input[name=stack][value=encoder]")).to_be_checked()
    expect(page.locator("#text")).to_have_value(re.compile("^The animal"))
    expect(examples).to_have_count(0)
    expect(page.locator("#look")).to_contain_text("ask who looks from “it” to “animal”")
    expect(page.locator("#look-title")).to_be_in_viewport()
    page.locator("#text").fill("dedu")
    expect(page.locator("#look")).not_to_contain_text("animal")


# Keyboard, lecture mode, accessibility


FOCUSED = """(() => {
  const e = document.activeElement;
  const name = e.name || e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent;
  return e === document.body ? "" : [e.tagName, e.dataset.item ?? "", name ?? ""].join("|");
})()"""
"""The element with the focus, the kind of its group, and its name."""


def test_every_group_has_one_tab_stop(page: Any) -> None:
    """All tab stops have a name, and there are few of them."""
    page.evaluate("document.activeElement.blur()")
    stops: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        element = page.evaluate(FOCUSED)
        if not element:
            break
        stops.append(element)
    assert 30 < len(stops) <= 60, stops
    items = [stop.split("|")[1] for stop in stops if stop.split("|")[1] not in ("", "save")]
    assert sorted(items) == ["lens", "node", "power", "thumbnail", "token", "token", "word"]
    assert not [stop for stop in stops if stop.endswith("|")]


def test_arrow_keys_move_within_a_group(page: Any) -> None:
    page.locator(".tokens.source button").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    third = page.locator(".tokens.source button").nth(2)
    expect(third).to_be_focused()
    expect(third).to_have_attribute("tabindex", "0")
    expect(page.locator(".tokens.source button[tabindex='0']")).to_have_count(1)
    page.locator(".thumbnail").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".thumbnail").nth(4)).to_be_focused()
    page.keyboard.press("Enter")
    for group, value in (("layer", 2), ("view", 1)):
        expect(page.locator(f"input[name={group}][value='{value}']")).to_be_checked()


def test_shortcuts_are_listed_and_can_be_switched_off(page: Any) -> None:
    page.locator("#text").blur()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    dialog.get_by_label("single-key shortcuts").uncheck()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    page.keyboard.press("e")
    expect(page.locator("input[name=stack][value=cross]")).to_be_checked()
    page.keyboard.press("?")
    dialog.get_by_label("single-key shortcuts").check()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.keyboard.press("e")
    expect(page.locator("input[name=stack][value=encoder]")).to_be_checked()


def test_lecture_mode_has_labels_of_22_pixels(open_page: Callable[..., Any], address: str) -> None:
    window = {"viewport": {"width": 1920, "height": 1080}}
    page = open_page(f"{address}#text={TEXT}&sentence=0&lecture=true", **window)
    expect(page.locator("main[aria-busy=false] .heat svg.figure")).to_be_visible()
    measure = "all => all.map((e) => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a)"
    for figure in (".lines", ".heat"):
        labels = page.locator(f"{figure} .token.end")
        wait_for_value(page, lambda labels=labels: min(labels.evaluate_all(measure), default=0) >= 22, True)
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    page.wait_for_function("document.documentElement.scrollHeight <= innerHeight + 1")
    page.locator("#inspected").click()
    page.keyboard.press("l")
    expect(page.locator("#text")).to_be_visible()


@pytest.mark.parametrize("window", [{}, {"color_scheme": "dark", **PHONE}], ids=["light", "dark phone"])
def test_every_state_is_accessible(
    open_page: Callable[..., Any], translator: Translator, window: dict[str, Any]
) -> None:
    """axe-core reports no violations, and nothing exceeds the width of the window."""
    with serve_page(translator, translator, keys=["secret"]) as address:
        page = open_page(address, bypass_csp=True, **window)
        load_axe(page)

        def check(what: str) -> None:
            assert (what, accessibility_problems(page)) == (what, [])

        check("empty page with examples")
        page.locator("#text").fill(TEXT)
        expect(page.get_by_label("API key")).to_be_visible()
        check("key wanted")
        page.get_by_label("API key").fill("secret")
        page.keyboard.press("Enter")
        translated(page, translator.translate(TEXT))
        page.locator(".word").first.click()
        expect(page.locator(".alternatives li button").first).to_be_visible()
        check("alternatives")
        page.get_by_role("button", name="Look inside this sentence").click()
        expect(page.locator("main[aria-busy=false] #inspected")).to_have_count(1)
        page.get_by_label("Another translation of the sentence").fill("gigo babo")
        page.get_by_label("Sentence to compare with").fill("dego")
        expect(page.locator("#reference-section table")).to_have_count(1)
        expect(page.locator("#compare-section figure")).to_have_count(2)
        page.get_by_role("button", name="Guided path").click()
        page.get_by_role("button", name="Next", exact=True).click()
        expect(page.locator(".guide-numbers table")).to_have_count(1)
        page.locator(".tokens.source button").nth(1).click()
        page.locator("[data-figure=logit-lens]").get_by_role("button", name="Data of").click()
        check("look inside with a pin, a table, a reference, a comparison and the guided path")
        page.get_by_role("button", name="Keyboard shortcuts").click()
        check("shortcuts")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="lecture mode").click()
        check("lecture mode")
