"""The learning rate's end; its beginning is held to the paper in test_paper_facts.py."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, write_lines

from transduce.training.api import train
from transduce.training.schedule import learning_rate, with_cooldown


def test_a_run_shorter_than_its_cooldown_is_all_cooldown() -> None:
    assert [with_cooldown(1.0, step, steps=4, cooldown=100) for step in (1, 2, 3, 4)] == [0.8, 0.6, 0.4, 0.2]


def test_without_cooldown_the_rate_stays() -> None:
    assert [with_cooldown(0.5, step, 10, 0) for step in (1, 9, 10)] == [0.5, 0.5, 0.5]


def test_the_last_steps_fall_in_a_straight_line_to_nothing() -> None:
    rates = [with_cooldown(1.0, step, 10, 4) for step in range(1, 12)]
    assert rates == pytest.approx([1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0])


def test_a_run_follows_it(tmp_path: Path, toy_pairs: Any) -> None:
    src, tgt = (write_lines(tmp_path / name, [pair[side] for pair in toy_pairs]) for side, name in enumerate("st"))
    settings = TINY | {"train.steps": 6, "train.cooldown": 3, "train.save_every": 6, "train.learning_rate_scale": 1.0}
    train(tmp_path / "run", src=src, tgt=tgt, settings=settings)
    records = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    rates = [record["learning_rate"] for record in records if record["kind"] == "train"]
    steady = [learning_rate(step, TINY["model.d_model"], TINY["train.warmup"]) for step in range(1, 7)]
    assert rates == pytest.approx(
        [rate * share for rate, share in zip(steady, (1, 1, 1, 3 / 4, 2 / 4, 1 / 4), strict=True)]
    )
