"""`transduce compare`."""

from typing import Any

from commands import complaint


def test_runs_are_compared(transduce: Any, trained: Any, tmp_path: Any) -> None:
    outcome = transduce("compare", trained.run, trained.run, "-o", "page.html", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "lowest validation loss" in outcome.out
    assert outcome.err == "transduce: page.html written\n"
    assert "Validation loss" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert complaint(transduce("compare", tmp_path, cwd=tmp_path)).endswith("is not a run: it has no config.toml")
    report = (trained.run / "report.html").read_text(encoding="utf-8")
    assert "transduce train --src" in report  # the command
    assert "Worst outputs" in report
