"""Shared by the tests of checkpoints: a small model in training, and its checkpoints."""

from pathlib import Path

import torch
from helpers import logits, random_sentences, small_model
from torch import Tensor

from transduce.data.batch import Batch
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training.adam import Adam
from transduce.training.checkpoint import Progress, adam_moments, list_checkpoints, save_checkpoint

V = 23


class Training:
    """A model and its optimizer; an update depends only on them and the step number."""

    def __init__(self, seed: int = 1, vocab_size: int = V, **settings: object) -> None:
        self.model = small_model(seed, vocab_size, **settings)
        self.optimizer = Adam(self.model.parameters())
        self.progress = Progress()

    def update(self) -> None:
        step = self.progress.step + 1
        source, target = random_sentences([4, 7, 2], V, 100 + step), random_sentences([5, 1, 6], V, 200 + step)
        hidden_MD = self.model(Batch.of(src=source, tgt=target))
        logits(self.model, hidden_MD).square().mean().backward()
        self.optimizer.step(step, 1e-2 / step)
        self.optimizer.zero_grad()
        self.progress.step = step

    def updated(self, steps: int) -> "Training":
        for _ in range(steps):
            self.update()
        return self

    def tensors(self) -> dict[str, Tensor]:
        """Copies of all tensors that training changes."""
        result = {name: x.detach().clone() for name, x in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            result |= {f"{key} of {name}": x.clone() for key, x in self.optimizer.moments[parameter].items()}
        return result


def assert_bitwise_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name in expected:
        assert torch.equal(actual[name], expected[name]), name


def save(folder: Path, tokenizer: Tokenizer, training: Training) -> Path:
    moments = adam_moments(training.model, training.optimizer)
    return save_checkpoint(folder, training.model, moments, tokenizer, training.progress, {"made": "here"})


def save_steps(folder: Path, tokenizer: Tokenizer, steps: list[int]) -> Training:
    """Save checkpoints of these steps, each with different weights."""
    training = Training()
    for step in steps:
        training.update()
        training.progress.step = step
        save(folder, tokenizer, training)
    return training


def names(folder: Path) -> list[str]:
    return [path.name for path in list_checkpoints(folder)]


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
