"""The verdict: every rule on measurements that are written out, and on a run that was trained."""

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from toy_run import TrainedRun

from transduce.config import build
from transduce.report.run import Run, read_run
from transduce.report.verdict import Verdict, judge
from transduce.training.recipe import Recipe

FALLING = [6.0, 5.5, 5.0, 4.6, 4.2, 3.9, 3.6, 3.4, 3.2, 3.0]
SETTLED = [6.0, 4.0, 3.0, 2.5, 2.2, 2.1, 2.05, 2.02, 2.01, 2.0]
FLAT = [6.0, 4.0, 3.0, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5]


def make(
    train: Sequence[float | None],
    valid: Sequence[float] = (),
    *,
    ended_by: str = "",
    waiting: float = 0.0,
    **config: Any,
) -> Run:
    """A run of 100 steps between measurements; `ended_by` finishes it."""
    settings = {"steps": 1000} | config
    recipe = build(Recipe, {"data": {"train": [["a.src", "a.tgt"]]}, "train": settings}, "test")
    records: list[dict[str, Any]] = []
    for number, loss in enumerate(train, 1):
        values = {"skipped": 100} if loss is None else {"loss": loss}
        records.append({"kind": "train", "step": 100 * number, "waiting": waiting, **values})
    for number, loss in enumerate(valid, 1):
        step = 100 * number * len(train) // len(valid)
        best = min(range(number), key=lambda n: valid[n]) + 1
        best_step = 100 * best * len(train) // len(valid)
        records.append({"kind": "valid", "step": step, "loss": loss, "criterion": "loss", "best_step": best_step})
    if ended_by:
        records.append({"kind": "final", "step": 100 * len(train), "ended_by": ended_by})
    return Run("run", Path("runs/run"), recipe, records)


def verdict(*args: Any, **options: Any) -> Verdict:
    found = judge(make(*args, **options))
    assert found is not None
    return found


def test_a_run_without_measurements_has_no_verdict() -> None:
    assert judge(make([])) is None


def test_a_run_that_its_minutes_ended_is_undertrained() -> None:
    found = verdict(FALLING, FALLING, ended_by="train.minutes=5", steps=20_000, minutes=5)
    assert found == Verdict(
        "undertrained",
        "1,000 of 20,000 steps because train.minutes ended; the loss is still falling",
        "resume with",
        "transduce train runs/run/config.toml --out runs/run --set train.minutes=100",
    )
    assert found.sentence == (
        "Undertrained: 1,000 of 20,000 steps because train.minutes ended; the loss is still falling; resume with:"
    )


def test_a_run_that_expected_fewer_steps_than_it_could_do_gets_the_minutes_that_it_needs() -> None:
    run = make([6.0], ended_by="train.minutes=60", steps=1000, minutes=60)
    run.train[-1]["seconds"] = 30.0  # of 100 steps
    found = judge(run)
    assert found is not None
    assert found.command.endswith("train.minutes=6")


def test_a_complete_run_whose_loss_falls_is_undertrained() -> None:
    found = verdict(FALLING, FALLING, ended_by="train.steps=1000")
    assert found.kind == "undertrained"
    assert found.finding.startswith("after all 1,000 steps, the loss still falls by ")
    assert found.command.endswith("--set train.steps=2000")


def test_few_measurements_of_an_ended_run_suffice() -> None:
    found = verdict([6.0], ended_by="train.minutes=0.5", steps=2000, minutes=0.5)
    assert found.finding == "100 of 2,000 steps because train.minutes ended"
    assert found.command.endswith("train.minutes=10")


def test_a_validation_loss_that_rises_is_overfitting() -> None:
    found = verdict(FALLING, [4.0, 3.0, 2.8, 3.1, 3.4], ended_by="train.steps=1000")
    assert found.kind == "overfitting"
    assert found.finding == (
        "the validation loss has risen from 2.800 at step 600 to 3.400, while the training loss falls"
    )
    assert "--out runs/run-2 --set model.dropout=0.2 --set train.patience=3" in found.command


def test_a_score_that_still_improves_is_no_overfitting() -> None:
    run = make(SETTLED, [4.0, 3.0, 2.8, 3.1, 3.4], ended_by="train.steps=1000")
    run.records[-2].update(criterion="bleu", best_step=1000)
    found = judge(run)
    assert found is not None
    assert found.kind != "overfitting"


def test_a_run_that_does_not_improve_is_on_a_plateau() -> None:
    found = verdict(FLAT, [*FLAT[:4], 2.51, 2.5, 2.51, 2.5, 2.51, 2.5], ended_by="train.steps=1000")
    assert found.kind == "plateau"
    assert found.finding == "the best loss on the validation set is that of step 400 of 1,000"
    assert found.command.endswith("--set train.steps=1200 --set train.cooldown=200")
    without = verdict(FLAT, FLAT, ended_by="train.steps=1000", cooldown=100)
    assert (without.kind, without.command) == ("plateau", "")
    assert without.sentence.endswith("a larger model or more text may help.")


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ([6.0, 4.0, 3.0, 2.5, 2.2, 2.1, 4.0, 6.5, 7.0, 7.1], "the training loss rose from 2.267 at step 600 to 6.867"),
        ([6.0, 4.0, 3.0, None], "the gradients of the steps before step 400 are not finite"),
    ],
)
def test_a_loss_that_rises_or_is_lost_has_diverged(train: list[float | None], words: str) -> None:
    found = verdict(train, learning_rate_scale=2.0)
    assert (found.kind, found.finding) == ("diverged", words)
    assert found.command.endswith("--out runs/run-2 --set train.learning_rate_scale=1 --set train.clip_norm=1.0")


def test_a_validation_loss_that_is_not_finite_has_diverged() -> None:
    assert verdict(FALLING, [4.0, 3.0, float("nan")]).kind == "diverged"


def test_noise_is_no_divergence() -> None:
    noisy = [loss + (0.2 if n % 2 else -0.2) for n, loss in enumerate(SETTLED)]
    assert verdict(noisy, ended_by="train.steps=1000").kind == "fine"


def test_a_loader_slower_than_the_device_is_data_bound() -> None:
    found = verdict(SETTLED, SETTLED, ended_by="train.steps=1000", waiting=0.45)
    assert (found.kind, found.finding) == ("data-bound", "the device waits for batches in 45% of the training time")
    assert found.command.endswith("--profile")
    assert "need more CPU cores" in verdict(SETTLED, waiting=0.45, ended_by="s", bpe_dropout=0.1).finding
    assert verdict(SETTLED, SETTLED, ended_by="train.steps=1000", waiting=0.1).kind == "fine"
    also = verdict(FALLING, FALLING, ended_by="train.minutes=5", steps=20_000, minutes=5, waiting=0.45)
    assert also.kind == "undertrained"
    assert "data-bound too, because the device waits" in also.finding


def test_a_run_that_settled_is_fine() -> None:
    found = verdict(SETTLED, SETTLED, ended_by="train.steps=1000")
    assert found.kind == "fine"
    assert found.command == "transduce translate --model runs/run"


def test_a_run_that_ends_while_the_learning_rate_rises_is_undertrained() -> None:
    found = verdict([6.0], [5.0], ended_by="train.steps=100", steps=100, warmup=500)
    assert found.sentence.startswith("Undertrained: 100 steps are fewer than train.warmup (500): the learning rate was")
    assert "train.steps=2000" in found.command


def test_a_run_that_was_stopped_is_resumed_with_its_settings() -> None:
    found = verdict(SETTLED[:5], SETTLED[:5])
    assert (found.kind, found.finding) == ("not finished", "500 of 1,000 steps; the loss is still falling")
    assert found.command == "transduce train runs/run/config.toml --out runs/run"


def test_the_command_of_a_trained_run_resumes_it(trained: TrainedRun, transduce: CommandLine, tmp_path: Path) -> None:
    shutil.copytree(trained.run, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.final is not None
    assert run.final["ended_by"] == "train.steps=60"
    waiting = [record["waiting"] for record in run.train]
    assert len(waiting) == 60
    assert all(0 <= share <= 1 for share in waiting)
    assert len((tmp_path / "run" / "outputs.jsonl").read_text().splitlines()) == 4
    found = judge(run)
    assert found is not None
    assert found.kind == "undertrained"
    assert "after all 60 steps" in (trained.run / "report.html").read_text(encoding="utf-8")
    program, *words = shlex.split(found.command)
    assert program == "transduce"
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "resuming from" in outcome.err
    assert read_run(tmp_path / "run").train[-1]["step"] == 120
