"""Weight decay and the cosine schedule."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import small_model

from transduce.errors import ConfigError
from transduce.training.learner import make_optimizer
from transduce.training.schedule import learning_rate, scheduled_rate
from transduce.training.train_config import TrainConfig


def test_without_weight_decay_it_is_the_papers_adam() -> None:
    """Bit for bit: the same as torch.optim.Adam without weight decay."""
    ours, theirs = small_model(), small_model()
    optimizer = make_optimizer(ours, TrainConfig())
    reference = torch.optim.Adam(theirs.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, fused=True)
    for number in range(1, 4):
        for model in (ours, theirs):
            torch.manual_seed(number)
            for weight in model.parameters():
                weight.grad = torch.randn_like(weight)
        optimizer.step(number, 1e-3)
        reference.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_only_matrices_decay() -> None:
    model = small_model()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = make_optimizer(model, TrainConfig(weight_decay=0.5))
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step(1, 0.1)
    for name, weight in model.named_parameters():
        expected = before[name] * (1 - 0.1 * 0.5) if weight.dim() >= 2 else before[name]
        assert torch.allclose(weight, expected, atol=1e-7), name


def test_the_cosine_rises_and_falls_as_defined() -> None:
    config = TrainConfig(schedule="cosine", steps=110, warmup=10, learning_rate=1e-3, final_learning_rate=1e-4)
    rates = {step: scheduled_rate(step, config, 128) for step in (1, 5, 10, 35, 60, 110, 111)}
    middle = (1e-3 + 1e-4) / 2
    quarter = 1e-4 + 9e-4 * (1 + math.cos(math.pi / 4)) / 2
    assert rates == pytest.approx({1: 1e-4, 5: 5e-4, 10: 1e-3, 35: quarter, 60: middle, 110: 1e-4, 111: 1e-4})
    by_width = replace(config, learning_rate=None)
    assert scheduled_rate(10, by_width, 128) == pytest.approx(learning_rate(10, 128, 10))


def test_the_papers_schedule_is_the_default() -> None:
    assert all(scheduled_rate(step, TrainConfig(), 512) == learning_rate(step, 512, 4000) for step in (1, 4000, 10**5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"final_learning_rate": 1e-4}, "final_learning_rate needs schedule = cosine"),
        ({"schedule": "cosine", "cooldown": 5}, "cooldown needs schedule = paper"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**settings)  # type: ignore[arg-type]
