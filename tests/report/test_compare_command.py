"""`transduce compare`."""

import re
from typing import Any

from commands import complaint, metrics
from toy_run import TINY, as_sets


def test_runs_are_compared(transduce: Any, trained: Any, tmp_path: Any) -> None:
    outcome = transduce("compare", trained.run, trained.run, "-o", "page.html", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "best loss of a checkpoint" in outcome.out
    assert outcome.err == "transduce: page.html written\n"
    assert "Validation loss" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert complaint(transduce("compare", tmp_path, cwd=tmp_path)).endswith("is not a run: it has no config.toml")
    for out, message in (("no/page.html", "there is no folder no; make it first"), (".", "is a folder; name a file")):
        assert complaint(transduce("compare", trained.run, "-o", out, cwd=tmp_path)).endswith(message)  # and no table
    report = (trained.run / "report.html").read_text(encoding="utf-8")
    assert "transduce train --src" in re.sub("<[^>]+>", "", report)  # the command
    assert "Worst outputs" in report


def test_a_finished_run_without_validation_text_is_finished(transduce: Any, trained: Any, tmp_path: Any) -> None:
    words = [*trained.words[: trained.words.index("--valid-src")], *as_sets(TINY | {"train.steps": 1})]
    outcome = transduce(*words, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    (final,) = [record for record in metrics(tmp_path / "run") if record["kind"] == "final"]
    assert final == {"kind": "final", "step": 1, "samples": [], "ended_by": "train.steps=1"}
    (verdict,) = [line for line in transduce("compare", "run", cwd=tmp_path).out.splitlines() if "verdict" in line]
    assert verdict.split()[1:] == ["undertrained"]
    report = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "Not finished" not in report
    assert "Checkpoints are scored" not in report


def test_architectures_and_their_sizes_are_compared(transduce: Any, trained: Any, tmp_path: Any) -> None:
    shared = {name: value for name, value in TINY.items() if not name.startswith("model.")}
    settings = shared | {"model.architecture": "recurrent", "model.d_model": 32, "train.steps": 1}
    files = trained.words[1 : trained.words.index("--preset")]
    outcome = transduce("train", *files, *as_sets(settings), "--out", "gru", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    table = transduce("compare", trained.run, "gru", cwd=tmp_path).out
    rows = {words[0]: words[1:] for line in table.splitlines() if (words := line.split())}
    assert rows["model.architecture"] == ["encoder_decoder", "recurrent"]
    assert rows["model.num_heads"] == ["2", "-"]
    assert rows["train.steps"] == ["60", "1"]
    assert "train.warmup" not in rows
