"""The captions of the examples are what the bundled model does; what is shared contains them."""

import base64
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import expect, expect_state

from transduce.inspect import inspection as inspection_module
from transduce.inspect.inspection import Inspection
from transduce.inspect.page import write_site
from transduce.inspect.request import InspectionRequest
from transduce.inspect.serialize import serialize
from transduce.translation.translator import Translator

LEAST = 0.1
"""The weight from which a head answers the question of an example."""


def inspected(bundled: Translator, text: str) -> Inspection:
    return inspection_module.inspect_translation(bundled, InspectionRequest(text=text, to="de"))


def tokens_of(bundled: Translator, tokens: list[int], word: str) -> list[int]:
    """The positions of the first tokens that make a word."""
    pieces = bundled.tokenizer.pieces(tokens)
    starts = [n for n, piece in enumerate(pieces) if piece.startswith("▁")]
    for start, end in zip(starts, [*starts[1:], len(pieces)], strict=True):
        run = range(start, end)
        while run and not pieces[run[-1]].strip("▁").isalnum():
            run = run[:-1]  # punctuation
        if "".join(pieces[n] for n in run).strip("▁") == word:
            return list(run)
    raise AssertionError(f"{word!r} is not in {pieces}")


def open_example(open_page: Callable[..., Any], address: str, number: int) -> tuple[Any, str]:
    """The page with an example, and its caption."""
    page = open_page(f"{address}#to=de")
    page.locator(".examples button").nth(number).click()
    expect(page.locator("main[aria-busy=false] .caption")).to_be_in_viewport(ratio=1)
    expect(page.locator("[data-figure$=-lines] svg.figure")).to_be_in_viewport(ratio=0.6)
    return page, page.locator(".caption").inner_text().replace("\xa0", " ")


@pytest.mark.parametrize(
    ("number", "stack", "query", "key"),
    [(0, "encoder", "it", "animal"), (1, "cross", None, "lent"), (2, "encoder", "making", "difficult"),
     (3, "encoder", "its", "Law")],
)  # fmt: skip
def test_the_caption_of_an_example_is_true(
    open_page: Callable[..., Any],
    bundled: Translator,
    bundled_address: str,
    number: int,
    stack: Any,
    query: str | None,
    key: str,
) -> None:
    page, caption = open_example(open_page, bundled_address, number)
    result = inspected(bundled, page.locator("#text").input_value())
    keys = tokens_of(bundled, result.source, key)
    if query is None:
        alignment_TS = result.attention["cross"][-1].mean(0)
        rows = [int(alignment_TS[:, n].argmax()) for n in keys]
    else:
        rows = tokens_of(bundled, result.source, query)
    weights_LHQK = (255 * result.attention[stack]).round()[:, :, rows][..., keys] / 255
    highest = weights_LHQK.max().item()
    percent = f"{highest:.0%}".replace("%", " %")
    if highest < LEAST:  # the example says openly that the model fails
        assert caption.startswith(f"No head of this model looks from “{query}” to “{key}” with more than")
        return
    layer, head = (index[0].item() + 1 for index in torch.where(weights_LHQK == highest)[:2])
    assert caption.startswith(f"Layer {layer}, head {head}")
    assert f"“{key}”: {percent}" in caption
    if query:
        assert f"looks from “{query}” to" in caption
    expect_state(page, layer=str(layer), view=str(head))
    row, column = (f"{'t' if query is None else 's'}{rows[0]}", f"s{keys[0]}")
    if weights_LHQK.shape[2:] == (1, 1):
        expect_state(page, pair=f"{row}.{column}")  # who opens this address sees the same
    if number == 0:
        other = tokens_of(bundled, result.source, "street")[0]
        weight = result.attention["encoder"][layer - 1, head - 1, rows[0], other].item()
        assert f"to “street”: {weight:.0%}".replace("%", " %") in caption


def test_the_caption_of_the_head_that_looks_at_neighbours_is_true(
    open_page: Callable[..., Any], bundled: Translator, bundled_address: str
) -> None:
    page, caption = open_example(open_page, bundled_address, 4)
    found = re.fullmatch(
        r"Layer (\d+), head (\d+) looks from each token to the one (before|after) it: (\d+) % on average\.", caption
    )
    assert found
    result = inspected(bundled, page.locator("#text").input_value())
    pieces = bundled.tokenizer.pieces(result.source)
    words = [not re.fullmatch(r"⟨.*⟩|▁|</s>", piece) for piece in pieces]

    def mean(weights_SS: Any, by: int) -> float:
        rows = [n for n in range(1, len(words) - 1) if words[n] and words[n + by]]
        return float(torch.stack([weights_SS[n, n + by] for n in rows]).mean())

    means = {
        (layer, head, by): mean(weights_SS, by)
        for layer, weights_HSS in enumerate(result.attention["encoder"], 1)
        for head, weights_SS in enumerate(weights_HSS, 1)
        for by in (-1, 1)
    }
    chosen = means[int(found[1]), int(found[2]), -1 if found[3] == "before" else 1]
    assert chosen == pytest.approx(max(means.values()), abs=0.01)
    assert chosen == pytest.approx(int(found[4]) / 100, abs=0.01)


EXAMPLES = (Path(__file__).parents[2] / "docs/examples.txt").read_text(encoding="utf-8").splitlines()


def test_the_captions_of_the_documentation_name_the_word_that_is_seen_most(
    open_page: Callable[..., Any], bundled: Translator, tmp_path: Path
) -> None:
    pairs = [(text, view) for text, view in (line.split("\t") for line in EXAMPLES) if "stack=encoder" in view]
    results = [inspected(bundled, text) for text, _ in pairs]
    pages = [(serialize(result, bundled), view) for result, (_, view) in zip(results, pairs, strict=True)]
    write_site(tmp_path / "site", [(text, "") for text, _ in pairs], pages)
    page = open_page((tmp_path / "site/index.html").as_uri(), offline=True)
    for number, ((_, view), result) in enumerate(zip(pairs, results, strict=True), 1):
        page.goto((tmp_path / f"site/{number}.html").as_uri())
        caption = page.locator(".caption").inner_text().replace("\xa0", " ")
        query, key = view.partition("question=")[2].split(">")
        pattern = (
            rf"Layer (\d+), head (\d+) looks from “{query}” to “{key}”: (\d+) %(, but more to “(\w+)”: (\d+) %)?\."
        )
        found = re.fullmatch(pattern, caption)
        assert found, caption
        assert int(found[3]) >= 100 * LEAST
        weights_SS = result.attention["encoder"][int(found[1]) - 1, int(found[2]) - 1]
        keys = tokens_of(bundled, result.source, key)
        row_S = max(
            (weights_SS[n] for n in tokens_of(bundled, result.source, query)), key=lambda row_S: row_S[keys].max()
        )
        pieces = bundled.tokenizer.pieces(result.source)
        seen = max((n for n, piece in enumerate(pieces) if piece.strip("▁").isalpha()), key=lambda n: row_S[n])
        word, percent = (found[5], found[6]) if found[4] else (key, found[3])
        assert seen in tokens_of(bundled, result.source, word)
        assert 100 * row_S[seen].item() == pytest.approx(int(percent), abs=0.8)  # stored in 8 bits


# Sharing


def test_the_picture_and_the_page_are_saved_with_their_caption(
    open_page: Callable[..., Any], bundled_address: str, tmp_path: Path
) -> None:
    page, caption = open_example(open_page, bundled_address, 0)
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG", exact=True).last.click()
    texts = [
        element.text or "" for element in ElementTree.parse(saved.value.path()).iter() if element.tag.endswith("text")
    ]
    assert " ".join(texts[:2]).replace("\xa0", " ").startswith(caption)
    assert "48 %" in texts or caption.split(": ")[1][:4].strip(",") in texts  # the line of the pair is drawn
    with page.expect_download() as saved:
        page.get_by_role("button", name="picture with caption (PNG)").click()
    data = saved.value.path().read_bytes()
    assert (data[:8], int.from_bytes(data[16:20])) == (b"\x89PNG\r\n\x1a\n", 2400)
    with page.expect_download() as saved:
        page.get_by_role("button", name="save as one HTML file").click()
    saved.value.save_as(tmp_path / "look.html")
    alone = open_page((tmp_path / "look.html").as_uri(), offline=True)
    expect(alone.locator(".lines .overlay .line")).to_have_count(1)
    assert caption.startswith(alone.locator(".caption").inner_text().replace("\xa0", " ").rstrip("."))


def test_a_site_needs_no_server(open_page: Callable[..., Any], bundled: Translator, tmp_path: Path) -> None:
    texts = ["The animal didn't cross the street because it was too tired.", "The <b>dog</b> sleeps."]
    results = [inspected(bundled, text) for text in texts]
    data = [serialize(result, bundled) for result in results]
    views = ["stack=encoder&question=it>animal", ""]
    site = tmp_path / "site"
    write_site(site, [(text, "</script>") for text in texts], list(zip(data, views, strict=True)))
    assert base64.b64encode(data[1]).decode() in (site / "2.html").read_text(encoding="utf-8")
    page = open_page((site / "index.html").as_uri(), offline=True)
    expect(page.locator(".site a b")).to_have_text(texts)
    page.locator(".site a").first.click()
    expect(page.locator(".caption")).to_contain_text("looks from “it” to “animal”")
    page.get_by_role("button", name="Next", exact=True).click()  # of the path
    page.get_by_label("show numbers").check()
    expect(page.locator("#path table tbody tr").first).to_be_attached()
    page.get_by_role("link", name="Next").click()
    expect(page.locator(".bar-text")).to_have_text(texts[1])
    expect(page.get_by_role("link", name="Next")).to_have_count(0)
    page.get_by_role("link", name="All sentences").click()
    expect(page.locator(".site a")).to_have_count(2)
