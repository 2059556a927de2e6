"""`transduce paper`: tables through the command line, with tiny models, row by row."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from commands import complaint
from toy_run import as_sets, make_toy_pairs, write_lines

TINY = as_sets(
    {
        "model.d_model": 32,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "tokenizer.vocab_size": 450,
        "train.batch_tokens": 512,
        "train.valid_sentences": 4,
        "train.device": "cpu",
        "search.max_extra": 2,
    }
)
TEXT = ["--train", "train.tsv", "--valid", "valid.tsv"]
TABLE3 = ["paper", "table3", "--out", "out", *TEXT, *TINY]
TABLE2 = ["paper", "table2", "--out", "out", *TEXT, *TINY]

SIGTERM_IN_STEP_6 = """
import os, signal
from transduce.training.steps import Steps
gradients = Steps.gradients
def stop(self, step):
    if step == 5:
        os.kill(os.getpid(), signal.SIGTERM)
    return gradients(self, step)
Steps.gradients = stop
"""

ONLY_TRAIN = """
import transduce.paper.comparisons as table2, transduce.paper.variations as table3
table2._cost_claims = lambda *_: ()
table3.parameters_of = lambda *_: 65_000_000
"""
"""Python code that leaves out what takes seconds and needs no training: counting FLOPs and parameters of large models,
which the tests of `paper all` and of `paper table3` without text do."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, pairs in (("train", make_toy_pairs(300, seed=1)), ("valid", make_toy_pairs(20, seed=2))):
        write_lines(tmp_path / f"{name}.tsv", ["\t".join(pair) for pair in pairs])
    return tmp_path


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "results.json").read_text(encoding="utf-8"))


def claims(folder: Path, table: str) -> dict[str, dict[str, str]]:
    return {claim["claim"]: claim for claim in results(folder)["sections"][table]["claims"]}


def test_rows_of_table_3_are_trained_once_and_continued(transduce: CommandLine, folder: Path) -> None:
    outcome = transduce(*TABLE3, "--rows", "base", "--steps", "4", cwd=folder, before=ONLY_TRAIN)
    assert outcome.code == 0, outcome.err
    assert results(folder)["rows"]["table3"].keys() == {"base", "base-2", "base-3"}
    seeds = [row["settings"]["train.seed"] for row in results(folder)["rows"]["table3"].values()]
    assert seeds == ["1", "2", "3"]

    outcome = transduce(*TABLE3, "--rows", "base,D1,E", "--steps", "4", cwd=folder, before=ONLY_TRAIN)
    assert outcome.code == 0, outcome.err
    assert results(folder)["rows"]["table3"].keys() == {"base", "base-2", "base-3", "D1", "E"}
    assert outcome.err.count("finished: ") == 2  # the base model was kept
    found = claims(folder, "table3")
    assert found["Row D1, P_drop = 0.0: perplexity"]["paper"] == "worse (+0.85)"
    assert found["Row D1, P_drop = 0.0: perplexity"]["verdict"] != "not checked"
    assert "Row D1, P_drop = 0.0: perplexity" in outcome.out
    page = (folder / "out" / "paper.html").read_text(encoding="utf-8")
    assert "Table 3: variations of the base model" in page

    outcome = transduce(*TABLE3, "--rows", "base", "--steps", "5", cwd=folder)
    assert "row base was trained with train.save_every=2, not 3" in complaint(outcome)


def test_a_stopped_row_continues(transduce: CommandLine, folder: Path) -> None:
    words = [*TABLE3, "--rows", "E", "--steps", "12"]
    outcome = transduce(*words, cwd=folder, before=ONLY_TRAIN + SIGTERM_IN_STEP_6)
    assert outcome.code == 128 + signal.SIGTERM
    assert "run the same command to resume" in outcome.err
    assert results(folder)["rows"] == {}

    outcome = transduce(*words, cwd=folder, before=ONLY_TRAIN)
    assert outcome.code == 0, outcome.err
    assert "resuming from out/table3/E/checkpoints/step-" in outcome.err
    assert results(folder)["rows"]["table3"]["E"]["steps"] == 12


def test_models_of_table_2_are_trained_and_compared(transduce: CommandLine, folder: Path) -> None:
    outcome = transduce(*TABLE2, "--steps", "4", "--pair", "toy", "--peak-tflops", "1", cwd=folder, before=ONLY_TRAIN)
    assert outcome.code == 0, outcome.err
    rows = results(folder)["rows"]["table2"]
    assert rows.keys() == {f"toy-4-steps-{model}" for model in ("base", "recurrent", "convolutional")}
    assert {row["architecture"] for row in rows.values()} == {"encoder_decoder", "recurrent", "convolutional"}
    assert len({row["steps"] for row in rows.values()}) == 1
    claim = claims(folder, "table2")["Transformer base is better than ConvS2S, toy-4-steps"]
    assert claim["verdict"] in ("confirmed", "contradicted")
    table = results(folder)["sections"]["table2"]["tables"][0]
    assert all(float(row[6]) > 1e6 for row in table["rows"])  # counted FLOPs

    outcome = transduce(*TABLE2, "--minutes", "0.005", "--models", "recurrent", cwd=folder, before=ONLY_TRAIN)
    assert outcome.code == 0, outcome.err
    (row,) = (row for name, row in results(folder)["rows"]["table2"].items() if "minutes" in name)
    assert row["settings"]["train.minutes"] == "0.005"


def test_models_with_other_scores_are_trained(transduce: CommandLine, folder: Path) -> None:
    narrow = "import transduce.paper.variations as scores; scores.TRAINED_WIDTHS = (8,)"
    words = ["paper", "scores", *TABLE3[2:], "--set", "model.num_heads=2", "--steps", "2"]
    outcome = transduce(*words, cwd=folder, before=ONLY_TRAIN + narrow)
    assert outcome.code == 0, outcome.err
    rows = results(folder)["rows"]["scores"]
    assert {name: row["settings"]["model.attention"] for name, row in rows.items()} == {
        "scaled-8": "scaled", "unscaled-8": "unscaled", "additive-8": "additive",
    }  # fmt: skip
    assert "perplexity" in claims(folder, "trained_scores")["The scale 1 / sqrt(d_k) counteracts this"]["ours"]


def test_parameters_are_counted_without_text(transduce: CommandLine, tmp_path: Path) -> None:
    outcome = transduce("paper", "table3", "--out", "out", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "65,110,016 with V = 40,960: confirmed" in outcome.out
    assert (tmp_path / "out" / "paper.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table3", "--rows", "F1"], "Table 3 has no row 'F1'"),
        (["table3", "--train", "train.tsv"], "give it with --valid"),
        (["table2", "--train", "train.tsv", "--valid", "valid.tsv"], "give --minutes, --steps or both"),
        (["table2", "--models", "bas"], "did you mean base"),
        (["table2", "--steps", "5"], "--steps is for training, but there is no training text; give it with --train"),
        (["table3", "--rows", "A1"], "--rows is for training"),
        (["scores", "--valid", "valid.tsv"], "--valid is for training"),
        (["table4", "--model", "runs/parser"], "give both --model and --test"),
        (["table4", "--mbr"], "give both --model and --test"),
        (["table4", "--ensemble"], "--ensemble is for several models"),
        (["table1", "--device", "abacus"], "device abacus cannot be used"),
        (["table1", "--out", "train.tsv/x"], "train.tsv/x: cannot be made: Not a directory"),
        (["table3", *TEXT, "--rows", "base,D1", "--set", "model.dropout=0.1"], "model.dropout is what D1 differs in"),
        (["table3", *TEXT, "--rows", "base", "--set", "train.seed=7"], "train.seed is what base differs in"),
        (["table3", *TEXT, "--set", "train.steps=7"], "--set train.steps=7: give --steps instead"),
        (["table2", *TEXT, "--steps", "1", "--set", "model.architecture=recurrent"], "model.architecture is what"),
        (["scores", *TEXT, "--set", "model.d_k=8"], "model.d_k is what scaled-16 differs in from other rows"),
        (["table3", "--train", "no.tsv", "--valid", "valid.tsv", "--steps", "4"], "no.tsv: no such file"),
    ],
)
def test_mistakes_are_named(transduce: CommandLine, folder: Path, words: list[str], message: str) -> None:
    assert message in complaint(transduce("paper", *words, cwd=folder))


def test_all_measures_what_needs_no_training(transduce: CommandLine, tmp_path: Path) -> None:
    # The parameters of table 3 are counted by the test of `paper table3` without text.
    faster = """
import transduce.paper.measured as table1, transduce.paper.variations as table3
table1._LENGTHS, table1.measure_table1.__defaults__ = (16, 32), ((16, 32), 0.0)
table3.parameters_of = lambda *_: 65_000_000
"""
    outcome = transduce("paper", "all", "--device", "cpu", cwd=tmp_path, before=faster)
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "paper" / "paper.html").read_text(encoding="utf-8")
    for title in ("Table 1:", "Section 3.2.1:", "Table 2:", "Table 3:", "Table 4:"):
        assert title in page
        assert title in outcome.out
    assert "Not measured yet" not in page
