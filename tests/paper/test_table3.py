"""Table 3: parameter counts, signs of differences, and their verdicts."""

from pathlib import Path
from typing import Any

import pytest

from transduce.errors import ConfigError
from transduce.paper.section import Results
from transduce.paper.variations import VARIATIONS, VOCABULARY, parameters_of, rows_named, table3_section, verdict_of

ROWS = {row.name: row for row in VARIATIONS}


def written_out(layers: int, d: int, d_ff: int, h: int, d_k: int, d_v: int) -> int:
    """Embedding, attention, feed-forward and norms of figure 1, with biases."""
    attention = 2 * (d * h * d_k + h * d_k) + (d * h * d_v + h * d_v) + (h * d_v * d + d)
    feed_forward = d * d_ff + d_ff + d_ff * d + d
    encoder = attention + feed_forward + 2 * 2 * d
    decoder = 2 * attention + feed_forward + 3 * 2 * d
    return VOCABULARY * d + layers * (encoder + decoder)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("base", (6, 512, 2048, 8, 64, 64)),
        ("A1", (6, 512, 2048, 1, 512, 512)),
        ("A4", (6, 512, 2048, 32, 16, 16)),
        ("B1", (6, 512, 2048, 8, 16, 64)),
        ("C1", (2, 512, 2048, 8, 64, 64)),
        ("C4", (6, 256, 2048, 8, 32, 32)),
        ("C5", (6, 1024, 2048, 8, 128, 128)),
        ("C7", (6, 512, 4096, 8, 64, 64)),
        ("big", (6, 1024, 4096, 16, 64, 64)),
    ],
)
def test_counts_are_exact(name: str, sizes: tuple[int, ...]) -> None:
    assert parameters_of(ROWS[name]) == written_out(*sizes)


def test_all_counts_but_that_of_big_are_the_papers() -> None:
    claims = [claim for claim in table3_section(Results(Path("/nowhere"))).claims if "parameters" in claim.claim]
    assert len(claims) == 11
    assert [claim.claim for claim in claims if claim.verdict != "confirmed"] == ["Row big, number of parameters"]


def test_rows_are_named_by_the_papers_letters() -> None:
    assert [row.name for row in rows_named("base, A1,c2,big")] == ["base", "A1", "C2", "big"]
    assert len(rows_named(None)) == 20
    with pytest.raises(ConfigError, match="no row 'A9'; rows: base, A1"):
        rows_named("base,A9")


def trained(perplexity: float, bleu: float) -> dict[str, Any]:
    return {
        "steps": 10,
        "data": {"pairs": 7},
        "vocab_size": 100,
        "scores": {"valid_perplexity": perplexity, "valid_bleu": bleu},
    }


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not count parameters, which takes a second."""
    monkeypatch.setattr("transduce.paper.variations.parameters_of", lambda _: 65_000_000)


def test_signs_are_compared_beyond_two_standard_deviations(tmp_path: Path, uncounted: None) -> None:
    results = Results(tmp_path)
    for name, row in {
        "base": trained(10.0, 20.0),
        "base-2": trained(10.2, 20.4),
        "base-3": trained(9.8, 19.6),
        "A1": trained(11.0, 19.5),  # perplexity beyond noise, BLEU within
        "C5": trained(10.9, 20.0),  # the paper's is better
        "E": trained(10.1, 20.1),  # the paper's is the same
    }.items():
        results.add_row("table3", name, row)
    section = table3_section(results)
    found = {claim.claim: claim for claim in section.claims}
    expected = {
        "Row A1, h = 1, d_k = d_v = 512: perplexity": ("worse (+0.37)", "worse (+1.00, noise 0.46)", "confirmed"),
        "Row A1, h = 1, d_k = d_v = 512: BLEU": ("worse (-0.90)", "same (-0.50, noise 0.92)", "within noise"),
        "Row C5, d_model = 1024, d_k = d_v = 128: perplexity": (
            "better (-0.26)", "worse (+0.90, noise 0.46)", "contradicted",
        ),
        "Row E, learned positions: perplexity": ("same (+0.00)", "same (+0.10, noise 0.46)", "confirmed"),
    }  # fmt: skip
    for claim, (paper, ours, verdict) in expected.items():
        assert (found[claim].paper, found[claim].ours, found[claim].verdict) == (paper, ours, verdict)
    (missing,) = (claim for claim in section.claims if claim.claim.startswith("Perplexity and BLEU of rows A2, A3"))
    assert missing.verdict == "not checked"
    assert "3 of 4 differences that are decided have the paper's sign." in section.notes


def test_one_seed_of_the_base_model_tells_no_noise(tmp_path: Path, uncounted: None) -> None:
    results = Results(tmp_path)
    results.add_row("table3", "base", trained(10.0, 20.0))
    results.add_row("table3", "A1", trained(11.0, 19.0))
    verdicts = {claim.verdict for claim in table3_section(results).claims if claim.claim.startswith("Row A1")}
    assert verdicts == {"not checked"}


def test_verdicts() -> None:
    assert verdict_of("worse", "worse") == "confirmed"
    assert verdict_of("same", "same") == "confirmed"
    assert verdict_of("worse", "same") == "within noise"
    assert verdict_of("worse", "better") == "contradicted"
    assert verdict_of("same", "better") == "contradicted"
