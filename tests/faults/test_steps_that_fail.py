"""Steps with gradients that are not finite or without enough memory, and the batches of a resumed run."""

import json
import math
import re
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from fault_injection import FULL, repetitions
from safetensors.torch import load_file
from torch import Tensor
from toy_run import TINY, make_toy_pairs, write_lines

from transduce.data.batch import Batch
from transduce.errors import RunError
from transduce.training.api import train
from transduce.training.learner import Compute, Learner
from transduce.training.steps import Steps
from transduce.training.task import Task

SETTINGS = TINY | {"train.steps": 8, "train.save_every": 2, "model.dropout": 0.0, "train.precision": "float32"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    sides = zip(("src", "tgt"), zip(*make_toy_pairs(300, seed=4), strict=True), strict=True)
    return {side: write_lines(tmp_path_factory.mktemp(side) / side, lines) for side, lines in sides}


def records(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record for record in lines if record["kind"] == kind]


def assert_finite(run: Path) -> None:
    for path in run.glob("checkpoints/step-*/*.safetensors"):
        assert all(x.isfinite().all() for x in load_file(path).values()), path


def inject(monkeypatch: pytest.MonkeyPatch, number: float, where: str, steps: set[int]) -> None:
    """Put this number into the loss, or into one gradient, of these steps, counted from 0."""
    steps_so_far, plain_loss, update = count(), Task.loss, Learner.update

    def changed_loss(*arguments: Any) -> tuple[Tensor, Tensor]:
        loss, nll = plain_loss(*arguments)
        return (loss + number, nll) if next(steps_so_far) in steps else (loss, nll)  # the gradient does not change

    def changed_update(self: Learner, *arguments: Any, **options: Any) -> Tensor:
        if next(steps_so_far) in steps:
            self._weights[-1].grad[-1] = number  # type: ignore[index]
        return update(self, *arguments, **options)

    if where == "loss":
        monkeypatch.setattr(Task, "loss", changed_loss)
    else:
        monkeypatch.setattr(Learner, "update", changed_update)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf] if FULL else [math.nan])
@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("steps", [{0, 1}, {3, 4, 6}, {7}] if FULL else [{0, 1}, {3, 4, 6}], ids=str)
def test_a_step_that_is_not_finite_is_skipped_and_counted(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: float, where: str, steps: set[int]
) -> None:
    inject(monkeypatch, number, where, steps)
    assert train(tmp_path / "run", **files, settings=SETTINGS).finished
    assert [record["skipped"] for record in records(tmp_path / "run")] == [int(step in steps) for step in range(8)]
    assert all(math.isfinite(record["loss"]) for record in records(tmp_path / "run") if not record["skipped"])
    assert_finite(tmp_path / "run")


def test_a_run_resumed_after_skipped_steps_is_bit_identical_to_an_uninterrupted_one(
    files: dict[str, Path], tmp_path: Path
) -> None:
    for name, ends in (("uninterrupted", [8]), ("resumed", [2, 4, 8])):
        start = 0
        for steps in ends:
            with pytest.MonkeyPatch.context() as patch:
                inject(patch, math.nan, "gradient", {step - start for step in (0, 1, 4)})
                train(tmp_path / name, **files, settings=SETTINGS | {"train.steps": steps})
            start = steps
    for name in ("model", "optimizer"):
        path = f"checkpoints/step-8/{name}.safetensors"
        assert (tmp_path / "uninterrupted" / path).read_bytes() == (tmp_path / "resumed" / path).read_bytes()


def test_after_ten_skipped_steps_in_a_row_the_run_stops_and_writes_their_pairs(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject(monkeypatch, math.nan, "gradient", set(range(5, 99)))
    with pytest.raises(RunError, match=r"10 steps in a row, up to step 15, .*bad_batches\.json"):
        train(tmp_path / "run", **files, settings=SETTINGS | {"train.steps": 30})
    bad = json.loads((tmp_path / "run/bad_batches.json").read_text())
    assert list(bad) == [f"step {step}" for step in range(6, 16)]
    assert all(pairs and set(pairs) <= set(range(300)) for pairs in bad.values())
    assert_finite(tmp_path / "run")


@pytest.mark.parametrize("limit", [300, 150, 80] if FULL else [150])
def test_a_batch_out_of_memory_is_split_and_the_loss_curve_is_the_same(
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    limit: int,
) -> None:
    assert train(tmp_path / "unsplit", **files, settings=SETTINGS).finished
    compute = Compute.__call__

    def limited(self: Compute, batch: Batch) -> Tensor:
        if max(len(batch["src"].ids_N), len(batch["tgt"].ids_N)) > limit:
            raise torch.OutOfMemoryError("injected")
        return compute(self, batch)

    monkeypatch.setattr(Compute, "__call__", limited)
    assert train(tmp_path / "split", **files, settings=SETTINGS).finished
    assert re.search(
        r"out of memory: from now on, batches of 512 tokens are split into \d+ parts", capsys.readouterr().err
    )
    unsplit, split = ([record["loss"] for record in records(tmp_path / name)] for name in ("unsplit", "split"))
    assert len(unsplit) == 8
    assert split == pytest.approx(unsplit, rel=1e-4)


def test_a_run_resumed_at_any_step_uses_the_batches_of_an_uninterrupted_one(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[list[list[int]]] = []
    next_parts = Steps._parts

    def recorded(self: Steps, step: int) -> list[Batch]:
        parts = next_parts(self, step)
        taken.append([x.tolist() for part in parts for x in (part["src"].ids_N, part["tgt"].ids_N, part.labels_L)])
        return parts

    monkeypatch.setattr(Steps, "_parts", recorded)
    settings = SETTINGS | {"train.steps": 51, "train.save_every": 1, "train.keep": 60, "train.bpe_dropout": 0.1}
    train(tmp_path / "uninterrupted", **files, settings=settings)
    uninterrupted = taken.copy()
    assert len({str(batch) for batch in uninterrupted}) == 51
    for step in range(1, 51, repetitions(16, 1)):
        run = tmp_path / f"resumed-{step}"
        (run / "checkpoints").mkdir(parents=True)
        for name in ("config.toml", "tokenizer.model", "metrics.jsonl", f"checkpoints/step-{step}"):
            copy = shutil.copytree if (tmp_path / "uninterrupted" / name).is_dir() else shutil.copy
            copy(tmp_path / "uninterrupted" / name, run / name)
        taken.clear()
        train(run, **files, settings=settings | {"train.steps": step + 1})
        assert taken == uninterrupted[step : step + 1], step
