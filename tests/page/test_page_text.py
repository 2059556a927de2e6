"""The page of a text that a language model or an encoder read, in Chromium."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import randomize
from pages import EXPERTS, accessibility_problems, choose, expect, fractions, hover, load_axe, slide, wait_for_value

from transduce.encoders.text_encoder import TextEncoder
from transduce.inspect.inspection import TextInspection, inspect_text
from transduce.inspect.page import self_contained
from transduce.inspect.serialize import serialize_text
from transduce.language_model.generator import Generator
from transduce.models.registry import build_config, create_model
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training.recipe import read_style


def inspected(style: str, text: str, tokenizer: Tokenizer) -> TextInspection:
    sizes: dict[str, Any] = {"layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 4, "max_positions": 64}
    table = {**read_style(style)["model"], **sizes, **({"kv_heads": 2} if style == "llama" else {})}
    model = create_model(build_config(table.pop("architecture"), table, "test"), tokenizer.vocab_size).eval()
    randomize(model, 7)
    return inspect_text(TextEncoder(model, tokenizer) if style == "bert" else Generator(model, tokenizer), text)


@pytest.mark.parametrize(
    ("style", "text", "figures"),
    [
        ("llama", "dedu babo gigo", ["next-token-1", "logit-lens"]),
        ("gpt2", "dedu babo gigo", ["next-token-1", "logit-lens", "positional-encoding", "position-similarity"]),
        ("bert", "dedu <mask> gigo", ["next-token-1", "logit-lens", "positional-encoding", "position-similarity"]),
        ("bert", "dedu babo gigo", ["positional-encoding", "position-similarity"]),
    ],
    ids=["llama", "gpt2", "masked", "encoder"],
)
def test_the_page_shows_tokens_attention_and_predictions(
    open_page: Callable[..., Any], toy_tokenizer: Tokenizer, tmp_path: Path, style: str, text: str, figures: list[str]
) -> None:
    inspection = inspected(style, text, toy_tokenizer)
    (tmp_path / "look.html").write_text(self_contained(serialize_text(inspection)), encoding="utf-8")
    page = open_page(f"{(tmp_path / 'look.html').as_uri()}#{EXPERTS}")
    T = len(inspection.tokens)
    expect(page.locator(".tokens button")).to_have_count(T)
    expect(page.locator("h1")).to_contain_text("inspect a text")
    labels = page.locator(".tokens button").all_inner_texts()
    assert labels[0] == "⟨start⟩"
    assert ("<mask>" in labels) == ("<mask>" in text)

    expected = ["attention-encoder-2-max-lines", "attention-encoder-2-max-map", *figures]
    shown = "all => all.map((one) => one.dataset.figure)"
    wait_for_value(page, lambda: page.locator("figure").evaluate_all(shown), expected)
    for svg in page.locator("svg.figure").all():
        expect(svg.locator("text, path, rect, image").nth(3)).to_be_attached()
    expect(page.locator(".thumbnail img")).to_have_count(8)
    words = page.locator("body").inner_text().lower()
    for absent in ("translat", "decoder", "cross", "source", "beam", "undefined", "nan", "switch"):
        assert absent not in words

    choose(page, "layer", 1)
    choose(page, "view", 3)
    page.get_by_role("button", name="Data of “Heat map”").click()
    row, column = T - 1, 1
    cell = page.locator(".data tbody tr").nth(row).locator("td").nth(column)
    weight = inspection.attention_LHTT[0, 2, row, column].item()
    wait_for_value(page, lambda: fractions(cell), pytest.approx([weight], abs=0.0075))
    choose(page, "view", "rollout")
    hover(page.locator(".tokens button").nth(1))


def test_every_position_of_a_language_model_has_predictions(
    open_page: Callable[..., Any], toy_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    inspection = inspected("llama", "dedu babo gigo", toy_tokenizer)
    (tmp_path / "look.html").write_text(self_contained(serialize_text(inspection)), encoding="utf-8")
    page = open_page((tmp_path / "look.html").as_uri())
    T = len(inspection.tokens)
    expect(page.locator(".lens .column")).to_have_count(T)
    expect(page.locator(".lens .prediction")).to_have_count(2 * T)
    page.locator(".tokens button").nth(2).click()
    expect(page.locator(".tokens .chosen")).to_have_count(1)
    expect(page.locator("#predictions-section .lead")).to_have_text(re.compile("^After “"))
    best = inspection.layers[-1].log_prob_TC[2].exp()[0].item()
    wait_for_value(page, lambda: fractions(page.locator(".bars .amount").first), pytest.approx([best], abs=0.0075))
    slide(page.locator("#predictions-section").get_by_role("slider", name="Position"), T)
    expect(page.locator("#predictions-section .lead")).to_contain_text("the text ends")


def test_the_layers_of_a_long_logit_lens_stay_labelled(
    open_page: Callable[..., Any], toy_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    inspection = inspected("llama", "dedu babo gigo dedu babo gigo", toy_tokenizer)
    (tmp_path / "look.html").write_text(self_contained(serialize_text(inspection)), encoding="utf-8")
    page = open_page((tmp_path / "look.html").as_uri(), viewport={"width": 390, "height": 844})
    lens = page.locator("[data-figure=logit-lens] .scroll")
    lens.scroll_into_view_if_needed()  # its parts have no places before
    left = "e => e.getBoundingClientRect().left"
    place = f"scroll => (scroll.scrollTo(60, 0), ({left})(scroll.querySelector('.labels')) - ({left})(scroll))"
    wait_for_value(page, lambda: lens.evaluate(place), 0)


@pytest.mark.parametrize(
    ("style", "text", "window"),
    [
        ("gpt2", "dedu babo gigo", {}),
        ("bert", "dedu <mask> gigo", {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}}),
    ],
    ids=["language model", "encoder, dark phone"],
)
def test_the_page_of_a_text_is_accessible(
    open_page: Callable[..., Any],
    toy_tokenizer: Tokenizer,
    tmp_path: Path,
    style: str,
    text: str,
    window: dict[str, Any],
) -> None:
    inspection = inspected(style, text, toy_tokenizer)
    (tmp_path / "look.html").write_text(self_contained(serialize_text(inspection)), encoding="utf-8")
    page = open_page((tmp_path / "look.html").as_uri(), bypass_csp=True, **window)
    load_axe(page)
    expect(page.locator(".tokens button")).to_have_count(len(inspection.tokens))
    assert accessibility_problems(page) == []
    page.locator(".tokens button").nth(1).click()
    page.locator("[data-figure=logit-lens]").get_by_role("button", name="Data of").click()
    expect(page.locator("[data-figure=logit-lens] table")).to_have_count(1)
    assert accessibility_problems(page) == []
    page.get_by_role("button", name="lecture mode").click()
    expect(page.locator("html.lecture")).to_have_count(1)
    assert accessibility_problems(page) == []
