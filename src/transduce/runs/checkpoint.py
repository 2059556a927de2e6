"""Checkpoints: `checkpoints/step-N/`, each a model folder with the optimizer's state beside it.

A checkpoint is written under another name and appears by one rename, or not at all. Its manifest holds the sha256 of
every file, so damage is found before it is used.
"""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from transduce.disk import atomic_folder, damaged_file, flush, write_manifest
from transduce.distributed.sharded import spread, whole
from transduce.errors import RunError
from transduce.models.card import WEIGHTS
from transduce.models.model import Model
from transduce.models.saved import read_weights, save_model, save_tensors
from transduce.text.tokenizer import Tokenizer

OPTIMIZER, STATE = "optimizer.safetensors", "state.json"
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Progress:
    """Where a run stands; what a checkpoint holds beside weights and optimizer."""

    step: int = 0
    """Updates made."""
    seconds: float = 0.0
    """Spent training, over all sittings."""
    best_step: int = 0
    best_score: float = float("-inf")
    """Of validation, higher is better."""
    best_metric: str = ""
    """What the score is, and of which text: both may change between sittings."""
    corpus: str = ""
    """The key of the prepared training text."""
    sources: dict[str, str] = field(default_factory=dict)
    """The files of that text and the sha256 of each."""


def save_checkpoint(
    checkpoints: Path,
    model: Model,
    moments: dict[str, torch.Tensor],
    tokenizer: Tokenizer,
    progress: Progress,
    facts: dict[str, Any],
) -> Path:
    """Write the checkpoint of this step: a whole model and its `adam_moments`."""
    final = checkpoints / f"step-{progress.step}"
    with atomic_folder(final) as work:
        save_model(work, model, tokenizer, facts)
        save_tensors(moments, work / OPTIMIZER)
        (work / STATE).write_text(json.dumps(asdict(progress)), encoding="utf-8")
        write_manifest(work)
    flush(checkpoints)
    return final


def begin_moments(optimizer: torch.optim.Optimizer) -> None:
    """Give Adam its moments before the first update, so that a checkpoint always finds them."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if not optimizer.state[weight]:
                # Fused Adam keeps its step count beside the weights, plain Adam on the CPU.
                step = torch.zeros((), device=weight.device if group["fused"] else "cpu")
                optimizer.state[weight] = {"step": step, **{name: torch.zeros_like(weight) for name in MOMENTS}}


def adam_moments(model: Model, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Adam's moments by the names of the weights; of a sharded model, put together from all processes."""
    return {
        f"{key}.{name}": whole(optimizer.state[parameter][key])
        for name, parameter in model.named_parameters()
        for key in MOMENTS
    }


def load_checkpoint(folder: Path, model: Model, optimizer: torch.optim.Optimizer) -> Progress:
    """Put a run back to where the checkpoint left it."""
    before = model.state_dict()
    weights = read_weights(folder / WEIGHTS, before)
    model.load_state_dict({name: spread(x, like=before[name]) for name, x in weights.items()})
    tensors = load_file(folder / OPTIMIZER)
    progress = read_progress(folder)
    begin_moments(optimizer)
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        state["step"].fill_(progress.step)
        for key in MOMENTS:
            state[key].copy_(spread(tensors[f"{key}.{name}"], like=parameter))
    return progress


def read_progress(folder: Path) -> Progress:
    """Where the run stood at this checkpoint."""
    return Progress(**json.loads((folder / STATE).read_text(encoding="utf-8")))


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """All whole checkpoints, oldest first."""
    found = [path for path in checkpoints.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    return sorted(found, key=_step)


def newest_step(checkpoints: Path) -> int:
    """The step of the newest checkpoint; 0 where there is none."""
    return max(map(_step, list_checkpoints(checkpoints)), default=0)


def newest_intact(checkpoints: Path, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose files are what its manifest says; damaged ones are named and put aside."""
    damaged: list[tuple[Path, str]] = []
    for folder in reversed(list_checkpoints(checkpoints)):
        damage = find_damage(folder)
        if damage is None:
            for bad, reason in damaged:
                say(f"{bad}: {reason}; put aside as {_put_aside(bad).name}")
            return folder
        damaged.append((folder, damage))
    if damaged:  # nothing is renamed then, so the next start says the same
        reasons = "; ".join(f"{folder.name}: {reason}" for folder, reason in damaged)
        raise RunError(f"{checkpoints}: every checkpoint is damaged ({reasons}); move the run away to start anew")
    return None


def find_damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint's files, if anything."""
    damage = damaged_file(folder, needed=(WEIGHTS, OPTIMIZER, STATE))
    return f"{damage[0].name} {damage[1]}" if damage else None


def scheduled(checkpoints: Path, every: int, last_step: int) -> list[Path]:
    """The checkpoints an uninterrupted run would have made, oldest first: a stop adds one at some other step."""
    return [p for p in list_checkpoints(checkpoints) if _step(p) % every == 0 or _step(p) == last_step]


def prune(checkpoints: Path, keep: int, best_step: int, every: int, last_step: int) -> None:
    """Delete all but the last `keep` scheduled ones, the newest and the best, and whatever an interrupted save left."""
    for leftover in checkpoints.glob(".step-*.tmp"):
        shutil.rmtree(leftover)
    link, new_link = checkpoints / "best", checkpoints / ".best.tmp"
    if (checkpoints / f"step-{best_step}").exists():  # or it could not be saved, and the best before it stays
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(f"step-{best_step}")
        new_link.replace(link)
    best = checkpoints / link.readlink().name if link.is_symlink() else None
    kept = {*scheduled(checkpoints, every, last_step)[-keep:], *list_checkpoints(checkpoints)[-1:], best}
    for folder in list_checkpoints(checkpoints):
        if folder not in kept:
            # Renamed first, or whoever is killed here would leave half a checkpoint.
            shutil.rmtree(folder.rename(checkpoints / f".{folder.name}.tmp"))


def _put_aside(folder: Path) -> Path:
    aside = folder.with_name(f"{folder.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    return folder.rename(aside)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))
