"""Beam search and predictions on the page, in Chromium."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from pages import TEXT, expect, expect_state, fractions, hover, settled, slide, wait_for_value

from transduce.inspect.inspection import Inspection, inspect_translation
from transduce.inspect.request import InspectionRequest
from transduce.tokenizers.tokenizer import EOS
from transduce.translation.translator import Translator

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
        expect(page.locator(".ranks li")).to_have_count(min(10, len(ranked)))
        for rank in range(1, min(10, len(ranked)) + 1):
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


# Predictions


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
    hover(page.locator(".lens .column").nth(1).locator(".prediction").nth(0))
    best = inspection.layers[0].token_TC[1].tolist()[:4]
    for n, (token, piece) in enumerate(zip(best, translator.tokenizer.pieces(best), strict=True)):
        label = "⟨end⟩" if token == EOS else piece.replace("▁", "·")
        expect(page.locator(".tooltip dt").nth(n)).to_have_text(label)
    page.locator(".lens .column").nth(1).click()
    expect_state(page, step="1")
