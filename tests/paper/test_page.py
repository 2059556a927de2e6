"""Results on disk, and the page and the text that are made from them."""

import re
from pathlib import Path

import pytest

from transduce.errors import RunError
from transduce.paper.comparisons import table4_section
from transduce.paper.section import Chart, Claim, Results, Section, Table, section_text, write_page
from transduce.paper.variations import trained_scores_section

SECTION = Section(
    title="Table 1: <b>",
    measured_on="a machine",
    claims=[Claim("a & b", "1", "2", "confirmed"), Claim("c", "3", "4", "within noise")],
    tables=[Table("numbers", ["x", "y"], [["1", "2"], ["10", "200"]]), Table("nothing", ["x"], [])],
    charts=[Chart("times", "n", "seconds", {"one": [(16, 0.001), (64, 0.1)], "zero": [(16, 0.0)]})],
    notes=["a note"],
)


def test_results_are_kept(tmp_path: Path) -> None:
    Results(tmp_path / "out").add_section("table1", SECTION)
    Results(tmp_path / "out").add_row("table3", "base", {"steps": 3})
    again = Results(tmp_path / "out")
    assert again.rows("table3") == {"base": {"steps": 3}}
    kept = again.sections["table1"]
    assert kept.claims == SECTION.claims
    assert section_text(kept) == section_text(SECTION)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"sections": {}}'])
def test_other_files_are_not_taken_for_results(tmp_path: Path, content: str) -> None:
    (tmp_path / "results.json").write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match="not the results of transduce paper"):
        Results(tmp_path)


def test_the_page_is_self_contained_and_escapes_text(tmp_path: Path) -> None:
    write_page(tmp_path / "paper.html", {"table1": SECTION, "table4": table4_section(Results(tmp_path))})
    page = (tmp_path / "paper.html").read_text(encoding="utf-8")
    assert "Table 1: &lt;b&gt;" in page
    assert "a &amp; b" in page
    assert not re.search(r"(src|href)=|https?:|@import|url\(", page)
    assert 'class="verdict within-noise">within noise' in page
    assert page.count("<polyline") == 1
    assert page.count("<circle") == 2  # a point at zero has no logarithm
    assert 'id="table2">table2</h2><p class="soft">Not measured yet.' in page
    assert "nothing" not in page


def test_the_text_lists_claims_and_tables() -> None:
    text = section_text(SECTION)
    assert "+ a & b\n    paper: 1; here: 2: confirmed" in text
    assert "\nx     y\n1     2\n10  200\n" in text
    assert text.endswith("1 confirmed, 1 within noise\n")


def test_parsers_are_compared_on_the_test_sets_that_both_have(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for model, architecture, f1 in (("small", "encoder_decoder", 82.0), ("gru", "recurrent", 80.5)):
        row = {"model": model, "architecture": architecture, "test": "craft", "f1": f1, "precision": f1, "recall": f1}
        results.add_row("table4", f"{model} craft", row)
    claims = table4_section(results).claims
    assert claims[0].ours == "82.0 on craft; WSJ cannot be had freely"
    assert (claims[1].ours, claims[1].verdict) == ("82.0 against 80.5", "confirmed")


def test_models_with_other_scores_confirm_or_contradict_the_paper(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert {claim.verdict for claim in trained_scores_section(results).claims} == {"not checked"}
    perplexities = {
        "additive-16": 5.0,
        "unscaled-16": 5.05,
        "additive-256": 5.1,
        "unscaled-256": 6.0,
        "scaled-256": 6.1,
    }
    for name, perplexity in perplexities.items():
        row = {"steps": 10, "data": {"pairs": 100}, "scores": {"valid_perplexity": perplexity, "valid_bleu": 20.0}}
        results.add_row("scores", name, row)
    section = trained_scores_section(results)
    assert [claim.verdict for claim in section.claims] == ["confirmed", "confirmed", "contradicted"]
