"""`train.minutes`, `train.patience`, `train.learning_rate` and `train.threads` on the command line."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from commands import complaint, content, copied, copied_until, metrics, sets
from toy_run import TINY, as_sets

# Every look at the clock of training takes a quarter of a second: the speed is the same on every machine.
SLOW_CLOCK = """
import itertools, types
from transduce.training import loop, milestones, steps
ticks = itertools.count(0, 0.25)
loop.time = milestones.time = steps.time = types.SimpleNamespace(monotonic=lambda: next(ticks))
"""

SIZES = as_sets({name: value for name, value in TINY.items() if not name.startswith("train.")})


def state(run: Path, step: int) -> dict[str, Any]:
    return json.loads((run / f"checkpoints/step-{step}/state.json").read_text())


def rates(run: Path) -> list[float]:
    return [record["learning_rate"] for record in metrics(run) if record["kind"] == "train"]


def test_a_run_ends_in_time_with_a_complete_cooldown_and_resumes_the_same(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    words = [*trained.words, *sets(minutes=0.5, cooldown=8, steps=1000, save_every=2, keep=99, log_every=100)]
    outcome = transduce(*words, "--out", "whole", cwd=tmp_path, before=SLOW_CLOCK)
    assert outcome.code == 0, outcome.err
    assert re.search(r"in 0\.5 minutes about \d+ steps", outcome.err)
    last = max(int(path.name[5:]) for path in (tmp_path / "whole/checkpoints").glob("step-*"))
    assert 10 < last < 60
    whole = state(tmp_path / "whole", last)
    assert (whole["last_step"], whole["ended_by"]) == (last, "train.minutes=0.5")
    facts = json.loads((tmp_path / "whole/model/model.json").read_text())["facts"]
    assert facts["steps"] == last

    decided = min(step for step in range(2, last, 2) if state(tmp_path / "whole", step)["last_step"] == last)
    resumed = copied_until(tmp_path / "whole", tmp_path / "resumed", decided)
    outcome = transduce(*words, "--out", "resumed", cwd=tmp_path)  # with the real clock, which is much faster
    assert outcome.code == 0, outcome.err
    assert f"resuming from resumed/checkpoints/step-{decided}" in outcome.err
    weights = f"checkpoints/step-{last}/model.safetensors"
    assert (resumed / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()
    assert state(resumed, last)["last_step"] == last

    again = transduce(*words, "--out", "whole", cwd=tmp_path)
    assert f"is finished after step {last} (train.minutes=0.5); raise it to train further" in again.err


def test_processes_end_together_by_the_clock_of_the_main_one(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = [*trained.words, *sets(minutes=0.4, cooldown=4, patience=50, steps=1000, save_every=5, log_every=100)]
    slow_main = "if rank == 0:" + SLOW_CLOCK.replace("\n", "\n    ")
    outcome = transduce(*words, "--out", "run", cwd=tmp_path, before=slow_main, processes=2)
    assert outcome.code == 0, outcome.err
    assert re.search(r"in 0\.4 minutes about \d+ steps", outcome.err)
    assert "finished: run/model" in outcome.err


def test_patience_ends_a_run_that_no_longer_improves(transduce: Any, trained: Any, tmp_path: Path) -> None:
    # With so small a rate, outputs and BLEU stay the same: the first validation is the best.
    words = [*trained.words[: trained.words.index("--preset")], "--preset", "tiny", *SIZES]
    still = [
        *sets(
            learning_rate=1e-12,
            patience=3,
            cooldown=0,
            save_every=2,
            steps=100,
            warmup=20,
            log_every=1,
            batch_tokens=512,
        )
    ]
    outcome = transduce(*words, *still, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "the run ends after step 8 because of train.patience=3" in outcome.err
    assert "at most 0:" in outcome.err
    run = tmp_path / "run"
    assert json.loads((run / "model/model.json").read_text())["facts"]["steps"] == 8
    assert os.readlink(run / "checkpoints/best") == "step-2"
    before = content(run)
    again = transduce(*words, *still, "--out", "run", cwd=tmp_path)
    assert "is finished after step 8 (train.patience=3); raise it" in again.err
    assert content(run) == before
    further = transduce(*words, *still, *sets(patience=4), "--out", "run", cwd=tmp_path)
    assert "the run ends after step 10 because of train.patience=4" in further.err


def test_the_highest_learning_rate_is_the_given_one(transduce: Any, trained: Any, tmp_path: Path) -> None:
    words = [*trained.words[: trained.words.index("--preset")], "--preset", "tiny", *SIZES]
    few = sets(learning_rate=0.004, warmup=4, steps=8, log_every=1, batch_tokens=512)
    outcome = transduce(*words, *few, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert rates(tmp_path / "run") == pytest.approx(
        [0.001, 0.002, 0.003, 0.004, *(0.004 * (4 / step) ** 0.5 for step in (5, 6, 7, 8))]
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.001, "learning_rate_scale": 0.5}, "exclude each other"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"minutes": 0}, "minutes must be above 0"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
    ],
)
def test_bad_values_are_one_line_and_leave_no_folder(
    transduce: Any, trained: Any, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    outcome = transduce(*trained.words, *sets(**settings), "--out", "run", cwd=tmp_path)
    assert message in complaint(outcome)
    assert not (tmp_path / "run").exists()


def test_the_number_of_threads_can_be_given_and_changed(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    count = "import torch; torch.set_num_threads = lambda threads: print('threads:', threads)"
    outcome = transduce(*trained.words, *sets(threads=3), "--out", run, cwd=tmp_path, before=count)
    assert (outcome.code, outcome.out) == (0, "threads: 3\n")
