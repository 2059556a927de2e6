"""The inspection of a sentence on the page, in Chromium."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
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
    state,
    wait_for_value,
)

from transduce.inspect.inspection import Inspection, InspectionRequest, inspect_translation
from transduce.inspect.page import self_contained
from transduce.models.registry import build_config, create_model
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import EOS, Tokenizer
from transduce.translator import Translator


def expect_cell(page: Any, row: int, column: int, weights_TS: Any) -> None:
    """Hover over a cell of the heat map until its tooltip shows the weight, rounded to a byte and to per cent."""
    frame = page.locator(".heat .frame")
    frame.scroll_into_view_if_needed()
    rows, columns = weights_TS.shape

    def shown() -> list[float]:
        box = frame.bounding_box()  # again each time: the page may still scroll, which also hides tooltips
        x, y = (column + 0.5) * box["width"] / columns, (row + 0.5) * box["height"] / rows
        page.mouse.move(box["x"] + x + 1, box["y"] + y)
        page.mouse.move(box["x"] + x, box["y"] + y)
        return fractions(page.locator(".tooltip .weight"))

    wait_for_value(page, shown, pytest.approx([float(weights_TS[row, column])], abs=0.0075))


# Highlights and attention


HOVERED = (".tokens.source button >> nth=-1", ".lens .column >> nth=-1 >> .prediction >> nth=0", ".node >> nth=-1")
"""Elements with a tooltip, at positions that a shorter text does not have."""


@pytest.mark.parametrize("selector", HOVERED, ids=["token", "prediction", "node"])
@pytest.mark.parametrize("text", ["", "ba"], ids=["emptied", "shorter"])
def test_a_tooltip_is_removed_with_its_element(page: Any, translator: Translator, selector: str, text: str) -> None:
    page.locator(selector).scroll_into_view_if_needed()

    def tooltips() -> int:
        page.mouse.move(2, 2)
        page.locator(selector).hover()
        return int(page.locator(".tooltip").count())

    wait_for_value(page, tooltips, 1)  # not the first time if the page still scrolls, which hides tooltips
    # Like a keystroke, this neither scrolls the page nor moves the pointer.
    type_it = "(box, text) => { box.value = text; box.dispatchEvent(new Event('input', { bubbles: true })); }"
    page.locator("#text").evaluate(type_it, text)
    if text:
        settled(page, translator.translate(text))
    else:
        expect(page.locator("#look")).to_have_count(0)
        expect(page.locator(".tooltip")).to_have_count(0)


def test_hovering_over_a_token_shows_a_tooltip_and_highlights_it_everywhere(
    page: Any, inspection: Inspection, translator: Translator
) -> None:
    page.set_viewport_size({"width": 1280, "height": 2400})  # figures outside of the window are not drawn again
    page.locator(".tokens.target button").nth(1).hover()
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


def test_a_thumbnail_enlarges_its_head(page: Any) -> None:
    before = page.locator(".heat image").first.get_attribute("href")
    page.get_by_role("button", name="Show layer 1, head 3").click()
    expect_state(page, layer="1", view="3")
    expect(page.locator(".heat image").first).not_to_have_attribute("href", before)
    expect(page.locator(".thumbnail img")).to_have_count(8)


def test_special_tokens_can_be_hidden(page: Any, inspection: Inspection) -> None:
    expect(page.locator(".lines .token")).to_have_count(len(inspection.source) + len(inspection.target))
    page.get_by_label("special tokens").uncheck()
    expect(page.locator(".lines .token")).to_have_count(len(inspection.source) + len(inspection.target) - 2)
    expect(page.locator(".lines")).not_to_contain_text("⟨")


def test_keyboard_shortcuts_change_layer_head_and_step(page: Any) -> None:
    page.locator("h1").click()
    page.locator("#text").blur()
    for key in "e[.,.k":
        page.keyboard.press(key)
    expect_state(page, stack="encoder", layer="1", view="1", step="1")
    page.keyboard.press("/")
    page.keyboard.press("e")
    expect(page.locator("#text")).to_have_value(TEXT + "e")


# Search


def test_the_length_penalty_changes_the_ranking(page: Any, inspection: Inspection, translator: Translator) -> None:
    def path(index: int) -> list[int]:
        node = inspection.tree[index]
        return [*path(node.parent), node.token] if index else []

    finished = [(node.log_prob, path(n)) for n, node in enumerate(inspection.tree) if node.outcome == "finished"]
    orders = []
    for alpha in (-1.0, 0.6, 3.0):
        slide(page.get_by_label("Length penalty"), alpha)
        ranked = sorted(finished, key=lambda one: -one[0] / ((5 + len(one[1])) / 6) ** alpha)
        for rank in range(1, page.locator(".ranks li").count() + 1):
            log_prob, tokens = ranked[rank - 1]
            score = log_prob / ((5 + len(tokens)) / 6) ** alpha
            row = page.locator(f".ranks li[data-rank='{rank}']")
            expect(row.locator(".score")).to_have_text(re.compile(f"{score:.3f}$".replace("-", "−")))
            expect(row.locator(".text")).to_have_text(translator.tokenizer.decode(tokens).strip() or "(empty)")
        orders.append([tokens for _, tokens in ranked])
    assert orders[0] != orders[2]  # otherwise the ranking has not changed
    page.get_by_role("button", name="search again").click()
    settled(page, translator.translate(TEXT, length_penalty=3.0))
    expect_state(page, searched="3")


def test_a_node_forces_a_prefix_that_can_be_removed(page: Any, inspection: Inspection, translator: Translator) -> None:
    other = next(n for n, node in enumerate(inspection.tree) if node.outcome == "pruned" and node.parent == 0)
    forced = inspect_translation(translator, InspectionRequest(text=TEXT, prefix=[inspection.tree[other].token]))
    page.locator(f"[data-node='{other}']").click()
    settled(page, translator.tokenizer.decode(forced.best.tokens))
    expect_state(page, prefix=str(inspection.tree[other].token))
    expect(page.locator(".tokens .forced")).to_have_count(1)
    page.get_by_role("button", name="remove prefix").click()
    settled(page, translator.tokenizer.decode(inspection.best.tokens))


def test_the_tree_is_shown_step_by_step_and_navigated_with_arrow_keys(page: Any, inspection: Inspection) -> None:
    slide(page.get_by_label("Step").first, 1)
    expect(page.locator(".node")).to_have_count(1 + sum(node.parent == 0 for node in inspection.tree[1:]))
    page.locator("[data-node='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-node='2']")).to_be_focused()
    expect(page.locator(".tooltip")).to_contain_text(f"{inspection.tree[2].log_prob:.3f}".replace("-", "−"))
    page.keyboard.press("Enter")
    expect_state(page, prefix=str(inspection.tree[2].token))


# Probabilities


def test_bars_are_the_probabilities_at_the_temperature(page: Any, inspection: Inspection) -> None:
    page.locator(".tokens.target button").nth(2).click()
    bars = page.locator(".bars .amount")
    for index, x in ((5, 1.0), (7, 2.0)):
        slide(page.get_by_label("Temperature"), index)
        expected = (inspection.layers[-1].log_prob_TC[2] / x - inspection.log_sum_TX[2, index]).exp()
        expect(bars).to_have_count(11)
        wait_for_value(page, lambda: fractions(bars)[:10], pytest.approx(expected.tolist(), rel=0.06))


def test_the_logit_lens_shows_the_predictions_of_each_layer(
    page: Any, inspection: Inspection, translator: Translator
) -> None:
    page.locator(".lens .column").nth(1).locator(".prediction").nth(0).hover()
    best = inspection.layers[0].token_TC[1].tolist()[:4]
    for n, (token, piece) in enumerate(zip(best, translator.tokenizer.pieces(best), strict=True)):
        label = "⟨end⟩" if token == EOS else piece.replace("▁", "·")
        expect(page.locator(".tooltip dt").nth(n)).to_have_text(label)
    page.locator(".lens .column").nth(1).click()
    expect_state(page, step="1")


# Head ablation


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


# URL, downloads, accessibility


def without_times(locator: Any) -> str:
    """The text of an element without durations in milliseconds."""
    return re.sub(r"\d+ ms", "", locator.text_content())


def test_a_view_is_restored_from_its_url(page: Any, open_page: Callable[..., Any]) -> None:
    choose(page, "stack", "decoder")
    choose(page, "layer", 1)
    choose(page, "view", 2)
    page.locator("[data-head='decoder.1.2']").click()
    page.locator(".tokens.target button").nth(1).click()
    page.keyboard.press("Escape")  # a pin is not part of the URL
    slide(page.get_by_label("Length penalty"), 1.4)
    page.get_by_label("special tokens").uncheck()
    page.get_by_role("button", name="theme: auto").click()
    expect(page.locator(".ablation")).to_be_visible()
    expect_state(page, stack="decoder", layer="1", view="2", off="decoder.1.2", step="1", alpha="1.4", theme="light")
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
    expect(page.locator("input[name=layer][value='2']")).to_be_checked()
    expect(page.locator("input[name=view][value=max]")).to_be_checked()
    expect(page.locator(".node")).to_have_count(len(inspection.tree))


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
    (tmp_path / "inspection.html").write_text(self_contained(inspection, translator), encoding="utf-8")
    page = open_page((tmp_path / "inspection.html").as_uri(), offline=True)
    settled(page, translator.tokenizer.decode(inspection.best.tokens))
    page.get_by_role("button", name="Show layer 1, head 2").click()
    slide(page.get_by_label("Length penalty"), 2)
    expect(page.locator(".node")).to_have_count(len(inspection.tree))
    expect(page.locator(".power:not([disabled])")).to_have_count(0)
    page.locator("[data-node='3']").click(force=True)
    expect(page.get_by_text("needs the model")).to_have_count(2)
    expect_state(page, alpha="2")
    assert "prefix" not in state(page)


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
        page = open_page(f"{address}#text={TEXT}&sentence=0&stack=encoder&view=rollout")
        settled(page, translator.tokenizer.decode(inspection.best.tokens))
        for group, values in (("stack", ["cross"]), ("view", ["1", "mean", "max"])):
            buttons = page.locator(f"input[name={group}]")
            expect(buttons).to_have_count(len(values))
            assert buttons.evaluate_all("all => all.map((x) => x.value)") == values
        expect(page.locator("#positions")).to_have_count(0)
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("e")
        weights_TS = inspection.attention["cross"][-1, 0]
        choose(page, "layer", len(inspection.attention["cross"]))
        for row, column in [(0, 1), (3, 2)]:
            expect_cell(page, row, column, weights_TS)
        expect(page.locator(".power:not([disabled])")).to_have_count(0)


@pytest.mark.parametrize(
    "window",
    [
        {"color_scheme": "light"},
        {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    ],
    ids=["light", "dark phone"],
)
def test_the_page_is_accessible(open_page: Callable[..., Any], address: str, window: dict[str, Any]) -> None:
    """axe-core reports no violations, and nothing exceeds the width of the window."""
    page = open_page(
        f"{address}#text={TEXT}&sentence=0&off=cross.1.1,cross.2.2&alpha=2&step=1", bypass_csp=True, **window
    )
    expect(page.locator(".ablation")).to_be_visible()
    load_axe(page)
    assert not accessibility_problems(page)
    assert len(page.evaluate("axe.run()")["passes"]) > 20
