"""Privacy: logs contain no text and no secrets, and the folder of a run only the samples that were requested."""

from pathlib import Path
from typing import Any

import pytest
from toy_run import TINY, as_sets, make_toy_pairs

WORD, SECRET = "Zwiebelfisch", "hunter2-in-the-environment"
BROKEN = {"tsv": f"{WORD} without a tab\n", "jsonl": f'{{"src": "{WORD}", "tgt": 5}}\n{{"src": "{WORD}\n'}


@pytest.mark.parametrize("samples", [0, 5])
def test_a_run_writes_no_text_except_for_the_requested_samples(transduce: Any, tmp_path: Path, samples: int) -> None:
    for name in ("train", "valid"):
        rows = [f"{src} {WORD}\t{WORD} {tgt}\n" for src, tgt in make_toy_pairs(100, seed=len(name))]
        (tmp_path / f"{name}.tsv").write_text("".join(rows) + BROKEN["tsv"])
    arguments = ["train", "--train", "train.tsv", "--valid", "valid.tsv", "--preset", "tiny", "--out", "run"]
    settings = TINY | {"train.steps": 4, "train.save_every": 2, "train.samples": samples}
    before = f"import os; os.environ['TOKEN'] = {SECRET!r}"
    outcome = transduce(*arguments, *as_sets(settings), cwd=tmp_path, before=before)
    assert outcome.code == 0, outcome.err
    assert "left out 1 pair without a tab (first: train.tsv, line 101)" in outcome.err
    assert WORD not in outcome.err + outcome.out
    assert SECRET not in outcome.err + outcome.out
    files_with_text = {
        path.name
        for path in (tmp_path / "run").rglob("*")
        if path.is_file() and path.name != "tokenizer.model" and WORD.encode() in path.read_bytes()
    }
    assert files_with_text == ({"metrics.jsonl", "outputs.jsonl", "report.html"} if samples else set())
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


@pytest.mark.parametrize("kind", BROKEN)
def test_an_error_about_invalid_text_does_not_quote_it(transduce: Any, tmp_path: Path, kind: str) -> None:
    (tmp_path / f"pairs.{kind}").write_text(BROKEN[kind])
    outcome = transduce("train", "--train", f"pairs.{kind}", "--out", "run", cwd=tmp_path)
    assert outcome.code == 2
    assert "no usable sentence pair" in outcome.err
    assert WORD not in outcome.err
