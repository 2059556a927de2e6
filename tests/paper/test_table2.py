"""Table 2: counted training FLOPs, the paper's costs, and verdicts on trained models."""

import json
from pathlib import Path
from typing import Any

import pytest

from transduce.errors import ConfigError
from transduce.paper.comparisons import models_named, table2_section, training_flops
from transduce.paper.section import Results
from transduce.paper.variations import tokens_seen


def test_training_flops_of_the_transformer_are_six_per_weight_and_token() -> None:
    d, d_ff, V, S, T = 32, 48, 100, 7, 5
    sizes = {"d_model": d, "d_ff": d_ff, "num_heads": 4, "encoder_layers": 2, "decoder_layers": 3}
    attention, feed_forward = 4 * d * d, 2 * d * d_ff
    source = 2 * (attention + feed_forward) + 3 * 2 * d * d  # the decoder projects the encoder's output
    target = 3 * (attention + 2 * d * d + feed_forward) + V * d
    products = 2 * 2 * S * S * d + 3 * 2 * T * T * d + 3 * 2 * T * S * d
    expected = 6 * (source * S + target * T + products)
    assert training_flops("encoder_decoder", sizes, V, S, T) == expected


@pytest.mark.parametrize("architecture", ["recurrent", "convolutional"])
def test_training_flops_of_predecessors_are_about_six_per_weight_and_token(architecture: str) -> None:
    from transduce.models.registry import build_config, create_model

    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
    sizes |= {"max_positions": 16} if architecture == "convolutional" else {}
    found = training_flops(architecture, sizes, 50, 9, 9)
    weights = create_model(build_config(architecture, sizes, "test"), 50).parameters_count
    assert 0.4 < found / (6 * weights * 9) < 1.3


def run(bleu: float, architecture: str = "encoder_decoder") -> dict[str, Any]:
    return {
        "steps": 10, "seconds": 60.0, "scores": {"valid_bleu": bleu, "valid_perplexity": 5.0}, "vocab_size": 50,
        "data": {"pairs": 10, "source_tokens": 80, "target_tokens": 90}, "target_tokens_seen": 1000.0,
        "model": {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}, "architecture": architecture,
    }  # fmt: skip


def test_models_are_compared_for_each_corpus_and_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The next test counts the FLOPs of the paper's models, which takes seconds.
    monkeypatch.setattr("transduce.paper.comparisons._cost_claims", lambda *_: [])
    results = Results(tmp_path)
    results.add_row("table2", "en-de-8-minutes-base", run(25.0))
    results.add_row("table2", "en-de-8-minutes-recurrent", run(20.0, "recurrent"))
    results.add_row("table2", "en-fr-100-steps-base", run(25.0))
    results.add_row("table2", "en-fr-100-steps-recurrent", run(26.0, "recurrent"))
    section = table2_section(results, peak=1e12)
    found = {claim.claim: (claim.ours, claim.verdict) for claim in section.claims}
    better = "Transformer base is better than GRU with attention"
    assert found[f"{better}, en-de-8-minutes"] == ("BLEU 25.00 against 20.00", "confirmed")
    assert found[f"{better}, en-fr-100-steps"] == ("BLEU 25.00 against 26.00", "contradicted")
    assert found["Transformer base is better than ConvS2S"][1] == "not checked"
    (_, _, _, minutes, steps, pairs, flops, cost) = section.tables[0].rows[0]
    assert (minutes, steps, pairs, cost) == ("1.0", "10", "100", "6.00e+13")
    per_pair = training_flops("encoder_decoder", run(0)["model"], 50, 9, 10)
    assert float(flops) == pytest.approx(100 * per_pair, rel=0.01)


def test_the_papers_costs_are_time_times_peak(tmp_path: Path) -> None:
    claims = {claim.claim: claim for claim in table2_section(Results(tmp_path), peak=None).claims}
    assert claims["Transformer base: training cost"].verdict == "confirmed"
    assert claims["Transformer big: training cost"].verdict == "confirmed"
    sustained = claims["Transformer base: the speed that a P100 sustains"]
    assert sustained.verdict == "contradicted"
    assert "29% of the printed cost" in sustained.ours


def test_tokens_are_counted_from_throughput(tmp_path: Path) -> None:
    records = [
        {"kind": "train", "step": 10, "tokens_per_second": 100.0},
        {"kind": "valid", "step": 10},
        {"kind": "train", "step": 30, "tokens_per_second": 200.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    # 50 tokens per step: 500 tokens in 5 s, then 1,000 in 5 s.
    assert tokens_seen(tmp_path / "metrics.jsonl", 10.0) == pytest.approx(1500)


def test_unknown_models_are_named() -> None:
    assert models_named(None) == ["base", "recurrent", "convolutional"]
    with pytest.raises(ConfigError, match=r"no model 'recurent' \(did you mean recurrent"):
        models_named("base,recurent")
