"""Ensembles: several models that predict each token together."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.data.batch import Batch
from transduce.errors import ModelError
from transduce.models.folder import SavedModel, find_model, load_model, require_combinable
from transduce.models.model import Model, ModelConfig
from transduce.nn.device import pick_device


class Ensemble(Model):
    """Models with one vocabulary; the log-probability of a token is the mean of theirs, normalized.

    The mean of log-probabilities differs from the mean of logits by a number for each row, which normalization removes.
    So the logits of the ensemble are the mean of the models' logits: their hidden vectors, concatenated, times their
    output projections, concatenated and divided by the number of models.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.config = ModelConfig(architecture="ensemble", d_model=sum(model.config.d_model for model in models))
        self.vocab_size = models[0].vocab_size

    def forward(self, batch: Batch) -> Tensor:
        return torch.cat([model(batch) for model in self._members], dim=-1)

    @cached_property
    def output_weight_VD(self) -> Tensor:
        weights = [model.output_weight_VD.detach() for model in self._members]
        return torch.cat(weights, dim=-1) / len(weights)

    @cached_property
    def output_bias_V(self) -> Tensor | None:
        biases = [model.output_bias_V.detach() for model in self._members if model.output_bias_V is not None]
        return sum(biases[1:], biases[0]) / len(self._members) if biases else None

    @property
    def device(self) -> torch.device:
        return self._members[0].device

    @property
    def longest(self) -> int | None:
        return min((model.longest for model in self._members if model.longest is not None), default=None)

    def reserve(self, length: int) -> None:
        for model in self._members:
            model.reserve(length)

    def layers(self) -> Iterable[nn.Module]:
        return (layer for model in self._members for layer in model.layers())

    @property
    def alignment_attention(self) -> nn.Module | None:
        return self._members[0].alignment_attention

    def start(self, source: Any) -> list[Any]:
        return [model.start(source) for model in self._members]

    def step(self, token_R: Tensor, state: list[Any]) -> tuple[Tensor, list[Any]]:
        results = [model.step(token_R, model_state) for model, model_state in zip(self._members, state, strict=True)]
        logits = [logits_RV.float() for logits_RV, _ in results]
        return sum(logits[1:], logits[0]) / len(logits), [model_state for _, model_state in results]

    def reorder(self, state: list[Any], index_BW: Tensor) -> list[Any]:
        return [model.reorder(model_state, index_BW) for model, model_state in zip(self._members, state, strict=True)]

    @property
    def _members(self) -> list[Any]:
        return list(self.models)


def open_model(*paths: str | Path, device: str, threads: int | None) -> tuple[Path, SavedModel]:
    """Load the model folders or runs that a user names; returns the folder of the first as well, for messages.

    `threads` are torch's on a CPU.
    """
    folders = [find_model(Path(path)) for path in paths]
    if threads:
        torch.set_num_threads(threads)
    saved = load_ensemble(folders, pick_device(device))
    return folders[0], saved


def load_ensemble(folders: Sequence[Path], device: torch.device | str = "cpu") -> SavedModel:
    """Load model folders as an ensemble, which has the tokenizer and the facts of the first model; one as it is.

    Inputs are as long as every model accepts, and single sentences if one of the models needs them.
    """
    if not folders:
        raise ModelError("there is no model to load; name at least one")
    if len(folders) == 1:
        return load_model(folders[0], device)
    saved = [load_model(folder, device) for folder in folders]
    first = saved[0]
    for folder, member in zip(folders, saved, strict=True):
        require_combinable(folders[0], first, folder, member)
        if not member.model.generates:
            raise ModelError(f"{folder}: {member.model.config.architecture} models do not generate text")
    facts = first.facts | {
        "max_length": min(member.facts.get("max_length", 256) for member in saved),
        "by_sentence": any(member.facts.get("by_sentence") for member in saved),
        "truecase": all(member.facts.get("truecase") for member in saved),
    }
    return SavedModel(Ensemble([member.model for member in saved]), first.tokenizer, facts)
