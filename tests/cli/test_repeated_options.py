"""An option that takes one value is refused if it is repeated; Click would use the last value."""

from pathlib import Path
from typing import Any

import pytest
from commands import complaint


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["info", "-m", "a", "-m", "b"], "--model"),
        (["info", "-m", "a", "--model", "b"], "--model"),
        (["inspect", "text", "-m", "a", "-m", "b"], "--model"),
        (["shrink", "--out", "x", "-m", "a", "-m", "b"], "--model"),
        (["shrink", "-o", "x", "--out", "y"], "--out"),
        (["translate", "--beam", "2", "--beam", "3", "text"], "--beam"),
        (["translate", "--beam=2", "text", "--beam=2"], "--beam"),
        (["translate", "--sample", "--no-sample", "text"], "--sample"),
        (["evaluate", "--src", "a", "--src", "b", "--ref", "c"], "--src"),
        (["average", "a", "b", "-o", "x", "-o", "y"], "--out"),
        (["serve", "--port", "1", "--port", "2"], "--port"),
        (["train", "--out", "x", "--out", "y"], "--out"),
        (["data", "check", "x.tsv", "--out", "a", "--out", "b"], "--out"),
    ],
)
def test_a_repeated_option_is_refused(transduce: Any, tmp_path: Path, words: list[str], option: str) -> None:
    outcome = transduce(*words, cwd=tmp_path)
    assert complaint(outcome) == f"{option} is given more than once; give it only once"
    assert not list(tmp_path.iterdir())


def test_a_value_that_looks_like_an_option_is_not_an_option(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce("translate", "-m", trained.run, "--prefix", "--prefix", "babo", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("--prefix")


def test_options_that_take_several_values_may_be_repeated(transduce: Any, trained: Any, tmp_path: Path) -> None:
    hypotheses = trained.folder / "valid.tgt"
    (tmp_path / "other").write_text(hypotheses.read_text())
    words = ("--ref", trained.folder / "valid.tgt", "--hyp", hypotheses, "--hyp", "other")
    assert transduce("evaluate", *words, cwd=tmp_path).code == 0
