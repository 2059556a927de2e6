"""The cooldown of the learning rate; test_paper_facts.py compares the schedule itself with the paper."""

import json
from pathlib import Path
from typing import Any

import pytest
from toy_run import TINY, write_lines

from transduce.training.api import train
from transduce.training.schedule import cooldown_factor, learning_rate


def test_a_run_shorter_than_its_cooldown_decays_from_the_first_step() -> None:
    assert [cooldown_factor(step, steps=4, cooldown=100) for step in (1, 2, 3, 4)] == [0.8, 0.6, 0.4, 0.2]


def test_without_cooldown_the_rate_is_unchanged() -> None:
    assert [cooldown_factor(step, 10, 0) for step in (1, 9, 10)] == [1, 1, 1]


def test_the_last_steps_decay_linearly_to_zero() -> None:
    rates = [cooldown_factor(step, 10, 4) for step in range(1, 12)]
    assert rates == pytest.approx([1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0])


def test_a_run_uses_the_cooldown(tmp_path: Path, toy_pairs: Any) -> None:
    src, tgt = (write_lines(tmp_path / name, [pair[side] for pair in toy_pairs]) for side, name in enumerate("st"))
    settings = TINY | {"train.steps": 6, "train.cooldown": 3, "train.save_every": 6, "train.learning_rate_scale": 1.0}
    train(tmp_path / "run", src=src, tgt=tgt, settings=settings)
    records = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    rates = [record["learning_rate"] for record in records if record["kind"] == "train"]
    without_cooldown = [learning_rate(step, TINY["model.d_model"], TINY["train.warmup"]) for step in range(1, 7)]
    assert rates == pytest.approx(
        [rate * share for rate, share in zip(without_cooldown, (1, 1, 1, 3 / 4, 2 / 4, 1 / 4), strict=True)]
    )
