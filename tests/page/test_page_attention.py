"""Highlights and attention on the page, in Chromium."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pages import (
    EXPERTS,
    PHONE,
    TEXT,
    choose,
    expect,
    expect_state,
    fractions,
    hover,
    serve_page,
    settled,
    wait_for_value,
)

from transduce.inspect.inspection import Inspection, inspect_translation
from transduce.inspect.request import InspectionRequest
from transduce.models.registry import build_config, create_model
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator

# Highlights


HOVERED = (".tokens.source button >> nth=-1", ".lens .column >> nth=-1 >> .prediction >> nth=0", ".node >> nth=-1")
"""Elements with a tooltip, at positions that a shorter text does not have."""


@pytest.mark.parametrize("selector", HOVERED, ids=["token", "prediction", "node"])
def test_a_tooltip_is_removed_with_its_element(page: Any, translator: Translator, selector: str) -> None:
    # Like a keystroke, this neither scrolls the page nor moves the pointer.
    type_it = "(box, text) => { box.value = text; box.dispatchEvent(new Event('input', { bubbles: true })); }"
    hover(page.locator(selector))
    page.locator("#text").evaluate(type_it, "ba")
    settled(page, translator.translate("ba"))
    hover(page.locator(selector))
    page.locator("#text").evaluate(type_it, "")
    expect(page.locator("#look")).to_have_count(0)
    expect(page.locator(".tooltip")).to_have_count(0)


def test_hovering_over_a_token_shows_a_tooltip_and_highlights_it_everywhere(
    page: Any, inspection: Inspection, translator: Translator
) -> None:
    page.set_viewport_size({"width": 1280, "height": 3600})  # figures outside of the window are not drawn again
    hover(page.locator(".tokens.target button").nth(1))
    token = inspection.target[1]
    tooltip = page.locator(".tooltip")
    expect(tooltip).to_contain_text(str(token))
    expect(tooltip).to_contain_text(translator.tokenizer.raw_bytes(token).hex(" ").upper())
    expect(tooltip.locator(".strip")).to_have_count(1)
    expect(page.locator(".lines .back.highlighted")).to_have_count(1)
    expect(page.locator(".heat .mark:not([hidden])")).to_have_count(1)
    expect(page.locator(".tokens .highlighted")).to_have_count(1)
    expect(page.locator(".node.highlighted")).to_have_count(1)
    expect(page.locator(".lens .column.highlighted")).to_have_count(1)
    page.mouse.move(2, 2)
    expect(tooltip).to_have_count(0)
    expect(page.locator(".tokens .highlighted")).to_have_count(0)


def test_figures_that_come_into_view_are_highlighted(page: Any) -> None:
    page.locator(".tokens.target button").nth(1).click()
    for figure in (".grid.row .thumbnail >> nth=7", "[data-figure=positional-encoding] .highlight-box"):
        page.locator(".heads" if "grid" in figure else "#positions").scroll_into_view_if_needed()
        expect(page.locator(figure)).to_have_count(1)


def test_a_token_of_the_encoder_lights_one_direction(page: Any, inspection: Inspection) -> None:
    choose(page, "stack", "encoder")
    choose(page, "view", 1)
    page.set_viewport_size({"width": 1280, "height": 3600})  # figures outside of the window are not drawn again
    hover(page.locator(".tokens.source button").nth(1))
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


# Weights


def middle_of_cell(frame: Any, row: int, column: int, shape: tuple[int, int]) -> tuple[float, float]:
    """The place of a cell within the frame of a heat map with this number of rows and columns."""
    box = frame.bounding_box()
    return (column + 0.5) * box["width"] / shape[1], (row + 0.5) * box["height"] / shape[0]


def expect_cell(page: Any, row: int, column: int, weights_TS: Any) -> None:
    """Hover over a cell of the heat map until its tooltip shows the weight, rounded to a byte and to per cent."""
    frame = page.locator(".heat .frame")
    frame.scroll_into_view_if_needed()

    def shown() -> list[float]:
        x, y = middle_of_cell(frame, row, column, weights_TS.shape)
        box = frame.bounding_box()  # again each time: the page may still scroll, which also hides tooltips
        page.mouse.move(box["x"] + x + 1, box["y"] + y)
        page.mouse.move(box["x"] + x, box["y"] + y)
        return fractions(page.locator(".tooltip .weight"))

    wait_for_value(page, shown, pytest.approx([float(weights_TS[row, column])], abs=0.0075))


def test_every_stack_layer_and_head_shows_the_models_weights(page: Any, inspection: Inspection) -> None:
    for stack, layer, head in [("encoder", 2, 3), ("decoder", 1, 4), ("cross", 2, 1)]:
        choose(page, "stack", stack)
        choose(page, "layer", layer)
        choose(page, "view", head)
        weights_TS = inspection.attention[stack][layer - 1, head - 1]
        T = len(weights_TS)
        for row, column in [(T - 1, 0), (T - 2, 1), (1, 0)]:
            expect_cell(page, row, column, weights_TS)


def test_combined_heads_are_their_mean_maximum_and_rollout(page: Any, inspection: Inspection) -> None:
    attention = {stack: weights.numpy() for stack, weights in inspection.attention.items()}
    S, T = len(inspection.source), len(inspection.target)
    source = np.eye(S)
    for mean_SS in attention["encoder"].mean(1):
        source = (source + mean_SS @ source) / 2
    from_target, from_source = np.eye(T), np.zeros((T, S))
    for self_TT, cross_TS in zip(attention["decoder"].mean(1), attention["cross"].mean(1), strict=True):
        from_target, from_source = ((x + self_TT @ x) / 2 for x in (from_target, from_source))
        from_target, from_source = from_target / 2, (from_source + cross_TS @ source) / 2
    assert from_target.sum(1) + from_source.sum(1) == pytest.approx(np.ones(T))
    expected = {
        ("cross", "mean"): attention["cross"][1].mean(0),
        ("cross", "max"): attention["cross"][1].max(0),
        ("cross", "rollout"): from_source,
        ("decoder", "rollout"): from_target,
        ("encoder", "rollout"): source,
    }
    choose(page, "layer", 2)
    for (stack, view), weights_TS in expected.items():
        choose(page, "stack", stack)
        choose(page, "view", view)
        for row, column in [(2, 1), (3, 0)]:
            expect_cell(page, row, column, weights_TS)


@pytest.mark.parametrize("architecture", ["recurrent", "convolutional"])
def test_a_model_without_self_attention_shows_its_cross_attention(
    open_page: Callable[..., Any], toy_tokenizer: Tokenizer, architecture: str
) -> None:
    torch.manual_seed(1)
    config = build_config(architecture, {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2}, "test")
    model = create_model(config, toy_tokenizer.vocab_size).eval()
    translator = Translator(model, toy_tokenizer, config=SearchConfig(max_extra=3))
    inspection = inspect_translation(translator, InspectionRequest(text=TEXT))
    with serve_page(translator) as address:
        page = open_page(f"{address}#text={TEXT}&sentence=0&stack=encoder&view=rollout&markers=true&experts=true")
        settled(page, translator.tokenizer.decode(inspection.best.tokens))
        for group, values in (("stack", ["cross"]), ("view", ["1", "mean", "max"])):
            for n, value in enumerate(values):
                expect(page.locator(f"input[name={group}]").nth(n)).to_have_value(value)
            expect(page.locator(f"input[name={group}]")).to_have_count(len(values))
        expect(page.locator("#positions")).to_have_count(0)
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("e")
        weights_TS = inspection.attention["cross"][-1, 0]
        choose(page, "layer", len(inspection.attention["cross"]))
        for row, column in [(0, 1), (3, 2)]:
            expect_cell(page, row, column, weights_TS)
        expect(page.locator(".power:not([disabled])")).to_have_count(0)


def test_markers_can_be_hidden(page: Any, inspection: Inspection) -> None:
    expect(page.locator(".lines .token")).to_have_count(len(inspection.source) + len(inspection.target))
    page.get_by_label("markers", exact=True).uncheck()
    expect(page.locator(".lines .token")).to_have_count(len(inspection.source) + len(inspection.target) - 2)
    expect(page.locator(".lines")).not_to_contain_text("⟨")


def test_the_legend_of_the_maximum_names_the_heads(page: Any) -> None:
    expect(page.locator(".heat .scale").get_by_text("heads 1 to 4")).to_have_count(1)
    choose(page, "view", "mean")
    expect(page.locator(".heat .scale").get_by_text("heads 1 to 4")).to_have_count(0)


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
    page = open_page(
        f"{address}#text={text}&sentence=0&stack=encoder&{EXPERTS}", viewport={"width": 390, "height": 500}
    )
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


# Heads


def test_a_thumbnail_enlarges_its_head(page: Any) -> None:
    before = page.locator(".heat image").first.get_attribute("href")
    page.get_by_role("button", name="Show layer 1, head 3").click()
    expect_state(page, layer="1", view="3")
    expect(page.locator(".heat image").first).not_to_have_attribute("href", before)
    expect(page.locator(".thumbnail img")).to_have_count(8)


def test_heads_are_ranked_by_who_looks_from_one_token_to_another(page: Any, inspection: Inspection) -> None:
    frame = page.locator(".attention-section .heat .frame")
    frame.scroll_into_view_if_needed()
    x, y = middle_of_cell(frame, 2, 1, (len(inspection.target), len(inspection.source)))
    frame.click(position={"x": x, "y": y})
    weights = (255 * inspection.attention["cross"][:, :, 2, 1]).round()  # as the page gets them
    ranked = sorted(((layer, head) for layer in range(2) for head in range(4)), key=lambda at: -weights[at].item())
    labels = [f"layer {layer + 1}, head {head + 1}" for layer, head in ranked]
    wait_for_value(
        page,
        lambda: page.locator(".thumbnail").evaluate_all("all => all.map((one) => one.ariaLabel)"),
        [f"Show {label}" for label in labels],
    )
    expect(page.locator(".who-list button")).to_have_text([re.compile(f"^{label} ") for label in labels[:5]])
    page.locator(".who-list button").first.click()
    expect_state(page, view=str(ranked[0][1] + 1))
    choices = page.locator(".who select")
    for n, value in ((0, "2"), (1, "1")):
        expect(choices.nth(n)).to_have_value(value)
    choices.nth(1).select_option("0")
    expect(page.locator(".attention-section .heat .mark:not([hidden])")).to_have_count(2)


def test_a_head_switched_off_changes_score_and_translation(
    page: Any, inspection: Inspection, translator: Translator
) -> None:
    names = ["cross.1.1", "cross.1.2", "cross.2.1"]
    for n, name in enumerate(names, 1):
        page.locator(f"[data-head='{name}']").click()
        ablated = inspect_translation(translator, InspectionRequest(text=TEXT, off=names[:n]))
        settled(page, translator.tokenizer.decode(ablated.best.tokens))
    assert ablated.ablation
    assert ablated.best.tokens != inspection.best.tokens
    for score in (inspection.best.score, ablated.best.score, ablated.ablation.rescored.score):
        expect(page.locator(".ablation")).to_contain_text(f"{score:.3f}".replace("-", "−"))
    expect(page.locator(".tile.off")).to_have_count(3)
    page.get_by_role("button", name="switch all on").click()
    settled(page, translator.tokenizer.decode(inspection.best.tokens))
    expect(page.locator(".ablation")).to_have_count(0)
