"""`data.replay`: old text mixed into fine-tuning, on the command line."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import complaint
from toy_run import make_toy_pairs, write_lines

TUNE = ["--set", "train.steps=4", "--set", "train.learning_rate=1e-4", "--set", "train.batch_tokens=300"]


def fine_tune(transduce: Any, trained: Any, cwd: Path, *words: str) -> Any:
    write_lines(cwd / "new.tsv", [f"new {n}\tneu {n}" for n in range(10)])
    write_lines(cwd / "old.tsv", ["\t".join(pair) for pair in make_toy_pairs(120, seed=5)])
    words = ("train", "--train", "new.tsv", "--start-from", str(trained.run), *TUNE, *words, "--out", "tuned")
    return transduce(*words, cwd=cwd)


def test_old_text_is_mixed_with_new_text(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = ["--set", "data.replay=old.tsv", "--set", "data.replay_share=0.6"]
    outcome = fine_tune(transduce, trained, tmp_path, *words)
    assert outcome.code == 0, outcome.err
    assert "data: new text: 10 pairs, each 8.00 times in an epoch (data.replay_share)" in outcome.err
    assert "data: old text: 120 pairs\n" in outcome.err
    facts = json.loads((tmp_path / "tuned/model/model.json").read_text())["facts"]
    assert (facts["data"]["train"], facts["data"]["replay"]) == ([["new.tsv"]], [["old.tsv"]])
    config = tomllib.loads((tmp_path / "tuned/config.toml").read_text())
    assert (config["data"]["replay"], config["data"]["replay_share"]) == ([["old.tsv"]], 0.6)

    (tmp_path / "old.tsv").rename(tmp_path / "moved.tsv")
    more = ["--set", "data.replay=moved.tsv", "--set", "data.replay_share=0.6", "--set", "train.steps=5"]
    (tmp_path / "old.tsv").unlink(missing_ok=True)
    again = transduce(
        "train", "--train", "new.tsv", "--start-from", trained.run, *TUNE, *more, "--out", "tuned", cwd=tmp_path
    )
    assert again.code == 0, again.err
    assert "resuming from" in again.err
    other = transduce(
        "train", "--train", "new.tsv", "--start-from", trained.run, *TUNE, *more[:2], "--out", "tuned", cwd=tmp_path
    )
    assert "data.replay_share (there 0.6, here 0.5)" in complaint(other)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.replay=old.tsv", "data.replay_share=1"], "replay_share must be above 0 and below 1"),
        (["data.replay_share=0.2"], "replay_share has no effect without old text (replay)"),
        (["data.replay=nothing.tsv"], "nothing.tsv: no such file"),
    ],
)
def test_mistakes_are_one_line(transduce: Any, trained: Any, tmp_path: Path, words: list[str], message: str) -> None:
    sets = [word for setting in words for word in ("--set", setting)]
    assert message in complaint(fine_tune(transduce, trained, tmp_path, *sets))
    assert not (tmp_path / "tuned").exists()
