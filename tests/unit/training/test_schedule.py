"""The learning rate's end; its beginning is held to the paper in test_paper_facts.py."""

import pytest

from transduce.training.schedule import cooled


def test_without_cooldown_the_rate_stays() -> None:
    assert [cooled(0.5, step, 10, 0) for step in (1, 9, 10)] == [0.5, 0.5, 0.5]


def test_the_last_steps_fall_in_a_straight_line_to_nothing() -> None:
    rates = [cooled(1.0, step, 10, 4) for step in range(1, 12)]
    assert rates == pytest.approx([1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0])
