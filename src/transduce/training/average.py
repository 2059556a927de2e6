"""Means of weights: of the last checkpoints (section 6.1), of those before and after fine-tuning, of several models."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

from transduce.disk import atomic_folder
from transduce.errors import ModelError
from transduce.models.folder import WEIGHTS, load_model, require_combinable, save_model
from transduce.models.model import Model


def load_average(model: Model, checkpoints: list[Path]) -> None:
    """Set the model's weights to the mean of the checkpoints."""
    total = {name: torch.zeros(x.shape, dtype=torch.float64) for name, x in model.state_dict().items()}
    for folder in checkpoints:
        for name, x in load_file(folder / WEIGHTS).items():
            total[name] += x
    model.load_state_dict({name: (x / len(checkpoints)).float() for name, x in total.items()})


def mix_in(model: Model, start: Path, share: float) -> None:
    """Give the weights before training a share of the model's; rows of new tokens and new layers stay as they are."""
    weights = model.state_dict()
    for name, before in load_file(start).items():
        known = weights[name][: len(before)]
        known.lerp_(before.to(known), share)


def average_models(folders: Sequence[Path], out: Path) -> None:
    """Write a model folder with the mean of these models' weights, atomically; its facts are those of the last one.

    Scores and the calibration of confidence are left out of the facts: they were measured with other weights.
    """
    if out.exists():
        raise ModelError(f"{out} exists already; name a folder that does not")
    _require_distinct(folders)
    last = load_model(folders[-1])
    sizes = last.model.config.sizes()
    total = {name: x.double() for name, x in last.model.state_dict().items()}
    for folder in folders[:-1]:
        other = load_model(folder)
        require_combinable(folder, other, folders[-1], last)
        if other.facts.get("labels") != last.facts.get("labels"):
            raise ModelError(f"{folder} and {folders[-1]} have different classes; name classifiers of the same labels")
        for name, value in other.model.config.sizes().items():
            if value != sizes.get(name):
                raise ModelError(
                    f"{folder} and {folders[-1]} differ in {name} ({value} and {sizes.get(name)}); only models of the "
                    "same sizes can be averaged"
                )
        for name, x in other.model.state_dict().items():
            total[name] += x
    last.model.load_state_dict({name: (x / len(folders)).float() for name, x in total.items()})
    measured = ("scores", "confidence")
    facts = {name: value for name, value in last.facts.items() if name not in measured} | {"averaged": len(folders)}
    with atomic_folder(out) as work:
        save_model(work, last.model, last.tokenizer, facts)


def _require_distinct(folders: Sequence[Path]) -> None:
    """Raise an error if two names lead to the same folder, such as those of a checkpoint and its link `best`."""
    named: dict[Path, Path] = {}
    for folder in folders:
        place = folder.resolve()
        if first := named.get(place):
            same = f"{first} is given twice" if first == folder else f"{first} and {folder} are the same model"
            raise ModelError(f"{same}; name each once")
        named[place] = folder
