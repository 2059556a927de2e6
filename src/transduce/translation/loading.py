"""Loads the models of a translator: one as its folder, or as torch modules, several of which are an ensemble."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.errors import ConfigError, ModelError, needs_torch
from transduce.fast.choose import runs_on_cpu
from transduce.features import feature_with
from transduce.models.any_model import AnyModel
from transduce.models.folder import read_model
from transduce.tokenizers.any_tokenizer import AnyTokenizer

if TYPE_CHECKING:
    from transduce.models.model import Model


def load_models(folders: Sequence[Path], device: str) -> tuple[AnyModel, AnyTokenizer, dict[str, Any]]:
    """The model of the folders with its tokenizer and its facts; for a CPU, the module of one is not built yet."""
    if len(folders) == 1 and runs_on_cpu(device):
        folder = read_model(folders[0])
        require_translation_model(folder.facts, folders[0])
        return folder, folder.tokenizer, folder.facts
    model, tokenizer, facts = _load_modules(folders, device)
    require_translation_model(facts, folders[0])
    return model, tokenizer, facts


def require_translation_model(facts: dict[str, Any], folder: Path) -> None:
    """Raise an error that tells what to do with a model whose task is another one than translation."""
    task = facts.get("task", "translate")
    if task != "translate" and (feature := feature_with("uses", task)):
        raise ModelError(f"{folder} was trained for the task {task}; {feature.uses[task]}")


def _load_modules(folders: Sequence[Path], device: str) -> "tuple[Model, AnyTokenizer, dict[str, Any]]":
    """Load a model, or several as an ensemble, with torch."""
    with needs_torch():
        from transduce.models.ensemble import load_ensemble
        from transduce.nn.device import pick_device

    at = pick_device(device)
    if at.type == "meta":
        raise ConfigError("the device meta computes nothing; use auto, cpu, cuda, cuda:1 ...")
    saved = load_ensemble(folders, at)
    return saved.model, saved.tokenizer, saved.facts
