"""Checkpoint averaging (section 6.1): the finished model is the mean of the last few checkpoints."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from transduce.models.card import WEIGHTS
from transduce.models.model import Model


def load_average(model: Model, checkpoints: list[Path]) -> None:
    """Set the model's weights to the mean of the checkpoints."""
    total = {name: torch.zeros(x.shape, dtype=torch.float64) for name, x in model.state_dict().items()}
    for folder in checkpoints:
        for name, x in load_file(folder / WEIGHTS).items():
            total[name] += x
    model.load_state_dict({name: (x / len(checkpoints)).float() for name, x in total.items()})
