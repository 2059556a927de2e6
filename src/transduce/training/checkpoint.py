"""Checkpoints: `checkpoints/step-N/`, each a model folder that also holds the optimizer's state.

A checkpoint is written under a temporary name and then renamed, so that it is complete or does not exist. Its manifest
holds the sha256 of every file, so that damage is detected before the checkpoint is loaded.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from transduce.disk import atomic_folder, damaged_file, flush, write_manifest
from transduce.errors import ModelError, RunError
from transduce.models.folder import WEIGHTS, load_model, require_combinable, save_model
from transduce.models.merged_weights import ADAPTER
from transduce.models.model import Model
from transduce.models.weight_tensors import read_weights, save_tensors
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.training.adam import MOMENTS, Adam
from transduce.training.sharded import gather_tensor, shard_like

OPTIMIZER, STATE = "optimizer.safetensors", "state.json"


@dataclass
class Progress:
    """The state of a run that a checkpoint holds in addition to weights and optimizer state."""

    step: int = 0
    """Number of updates."""
    seconds: float = 0.0
    """Training time, summed over all resumes."""
    elapsed: float = 0.0
    """Time of the run: training, preparation, validation and saving, likewise."""
    best_step: int = 0
    """Step with the best validation score."""
    best_score: float = float("-inf")
    """Best validation score so far; higher is better."""
    best_loss: float = float("inf")
    """Validation loss at that step, which decides between equal scores."""
    best_metric: str = ""
    """Metric of the score and digest of the validation text: both may change when a run is resumed."""
    corpus: str = ""
    """Key of the prepared training text."""
    sources: dict[str, str] = field(default_factory=dict)
    """Files of the training text and the sha256 of each."""
    last_step: int = 0
    """Step after which the run ends, if that was decided before `train.steps` (training/schedule.py)."""
    cooldown: float = 0.0
    """Number of last steps in which the learning rate then decays."""
    ended_by: str = ""
    """Setting that decided it, with its value; empty if nothing was decided."""
    magnitudes: list[float] = field(default_factory=list)
    """Largest magnitudes of the last step, from which the next one scales what it rounds to 8 bits (Learner)."""
    adapted: dict[str, Any] = field(default_factory=dict)
    """Settings of [train] that were adapted to `train.minutes`."""

    def compare(self, metric: str, score: float, loss: float) -> None:
        """Make this step the best one if its score is higher, or equal and its loss lower, or the metric is another."""
        if (score, -loss) > (self.best_score, -self.best_loss) or metric != self.best_metric:
            self.best_step, self.best_metric = self.step, metric
            self.best_score, self.best_loss = score, loss


def save_checkpoint(
    checkpoints: Path,
    model: Model,
    moments: dict[str, torch.Tensor],
    tokenizer: AnyTokenizer,
    progress: Progress,
    facts: dict[str, Any],
) -> Path:
    """Write the checkpoint of this step: the complete model and its `adam_moments`."""
    final = checkpoints / f"step-{progress.step}"
    with atomic_folder(final) as work:
        save_model(work, model, tokenizer, facts)
        save_tensors(moments, work / OPTIMIZER)
        (work / STATE).write_text(json.dumps(asdict(progress)), encoding="utf-8")
        write_manifest(work)
    flush(checkpoints)
    return final


def adam_moments(model: Model, optimizer: Adam, *, keep: bool = True) -> dict[str, torch.Tensor]:
    """Adam's moments by the names of the weights, in the processes that `keep` them.

    All processes gather those of a sharded model, one tensor after the other, into the memory of the CPU: on a GPU,
    all of them may not fit beside the complete weights.
    """
    moments = {}
    for name, parameter in model.trained.named_parameters():
        for key in MOMENTS:
            mine = optimizer.moments[parameter][key]
            complete = gather_tensor(mine)
            if keep:
                moments[f"{key}.{name}"] = complete if complete is mine else complete.cpu()
    return moments


def load_checkpoint(folder: Path, model: Model, optimizer: Adam) -> Progress:
    """Load weights and optimizer state from a checkpoint; returns its progress."""
    before = model.trained.state_dict()
    weights = read_weights(_weights_of(folder), before)
    model.trained.load_state_dict({name: shard_like(x, like=before[name]) for name, x in weights.items()})
    tensors = load_file(folder / OPTIMIZER)
    progress = read_progress(folder)
    for name, parameter in model.trained.named_parameters():
        for key, moment in optimizer.moments[parameter].items():
            moment.copy_(shard_like(tensors[f"{key}.{name}"], like=parameter))
    return progress


def read_progress(folder: Path) -> Progress:
    return Progress(**json.loads((folder / STATE).read_text(encoding="utf-8")))


def list_checkpoints(checkpoints: Path) -> list[Path]:
    folders = [path for path in checkpoints.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    return sorted(folders, key=_step)


def newest_step(checkpoints: Path) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    return max(map(_step, list_checkpoints(checkpoints)), default=0)


def newest_intact(checkpoints: Path, log: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose files match its manifest; newer, damaged ones are logged and renamed."""
    damaged: list[tuple[Path, str]] = []
    for folder in reversed(list_checkpoints(checkpoints)):
        damage = find_damage(folder)
        if damage is None:
            for bad, reason in damaged:
                target = bad.with_name(f"{bad.name}.damaged")
                shutil.rmtree(target, ignore_errors=True)
                log(f"{bad}: {reason}; renamed to {bad.rename(target).name}")
            return folder
        damaged.append((folder, damage))
    if damaged:  # nothing is renamed, so that the next start reports the same error
        reasons = "; ".join(f"{folder.name}: {reason}" for folder, reason in damaged)
        raise RunError(
            f"{checkpoints}: every checkpoint is damaged ({reasons}); choose another --out to start a new run"
        )
    return None


def find_damage(folder: Path) -> str | None:
    """The first damaged file of a checkpoint and its damage; None if all are intact."""
    damage = damaged_file(folder, needed=(_weights_of(folder).name, OPTIMIZER, STATE))
    return f"{damage[0].name} {damage[1]}" if damage else None


def _weights_of(folder: Path) -> Path:
    """The file of a checkpoint with what was trained (`Model.trained`)."""
    return folder / (ADAPTER if (folder / ADAPTER).exists() else WEIGHTS)


def scheduled(checkpoints: Path, every: int, last_step: int) -> list[Path]:
    """The checkpoints of regular steps, oldest first, without those that were saved when a run was stopped."""
    return [p for p in list_checkpoints(checkpoints) if _step(p) % every == 0 or _step(p) == last_step]


def prune(checkpoints: Path, keep: int, best_step: int, every: int, last_step: int) -> None:
    """Keep the last `keep` scheduled checkpoints, the newest and the best; delete the others and leftovers."""
    for leftover in checkpoints.glob(".step-*.tmp"):
        shutil.rmtree(leftover)
    link, new_link = checkpoints / "best", checkpoints / ".best.tmp"
    if (checkpoints / f"step-{best_step}").exists():  # otherwise it was not saved, and the previous best one is kept
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(f"step-{best_step}")
        new_link.replace(link)
    best = checkpoints / link.readlink().name if link.is_symlink() else None
    kept = {*scheduled(checkpoints, every, last_step)[-keep:], *list_checkpoints(checkpoints)[-1:], best}
    for folder in list_checkpoints(checkpoints):
        if folder not in kept:
            # Renamed first, so that a kill during the deletion does not leave a partial checkpoint.
            shutil.rmtree(folder.rename(checkpoints / f".{folder.name}.tmp"))


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def load_average(model: Model, checkpoints: list[Path]) -> None:
    """Load the mean of the weights of checkpoints; of low-rank updates, each factor is averaged."""
    total = {name: torch.zeros(x.shape, dtype=torch.float64) for name, x in model.trained.state_dict().items()}
    for folder in checkpoints:
        for name, x in load_file(_weights_of(folder)).items():
            total[name] += x
    model.trained.load_state_dict({name: (x / len(checkpoints)).float() for name, x in total.items()})


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
