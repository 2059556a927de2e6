"""The weights and settings of a Hugging Face model, as its converter reads them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.models.model import ModelConfig

Settings = Mapping[str, Any]
Weights = Mapping[str, Tensor]
Converted = tuple[ModelConfig, dict[str, Tensor]]

_ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "swish",
    "swish": "swish", "gated-gelu": "geglu", "gated-silu": "swiglu",
}  # fmt: skip


class Source:
    """Weights whose names begin with a prefix, which some files leave out."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self._weights, self._prefix = weights, prefix
        if not any(name.startswith(prefix) for name in weights):
            self._prefix = prefix.partition(".")[2]

    def __getitem__(self, name: str) -> Tensor:
        return self._weights[self._prefix + name]

    def inside(self, prefix: str) -> "Source":
        """The weights of an inner module."""
        inner = Source({}, "")
        inner._weights, inner._prefix = self._weights, self._prefix + prefix
        return inner

    def scaled(self, name: str, factor: float) -> "Source":
        """The same weights, one multiplied by a factor."""
        path = f"{self._prefix}{name}.weight"
        scaled = Source({}, "")
        scaled._weights, scaled._prefix = {**self._weights, path: self._weights[path] * factor}, self._prefix
        return scaled

    def modules(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Weight and, if there is one, bias of each module, under our name for it."""
        found = {}
        for ours, theirs in names.items():
            found[f"{ours}.weight"] = self[f"{theirs}.weight"]
            if f"{self._prefix}{theirs}.bias" in self._weights:
                found[f"{ours}.bias"] = self[f"{theirs}.bias"]
        return found

    def joined(self, ours: str, theirs: list[str], *, bias: bool | None = None) -> dict[str, Tensor]:
        """Several linear layers as one; with `bias`, a missing bias is zeros."""
        matrices = [self[f"{name}.weight"] for name in theirs]
        biases = [self._weights.get(f"{self._prefix}{name}.bias") for name in theirs]
        found = {f"{ours}.weight": torch.cat(matrices)}
        if bias or all(x is not None for x in biases):
            zeros = [torch.zeros(len(matrix), dtype=matrix.dtype) for matrix in matrices]
            found[f"{ours}.bias"] = torch.cat([z if x is None else x for x, z in zip(biases, zeros, strict=True)])
        return found


def activation_of(name: str) -> Any:
    """Our name of an activation of `config.json`."""
    if name not in _ACTIVATIONS:
        raise ModelError(f"config.json: the activation {name!r:.40} is not supported; use {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def classes_of(settings: Settings) -> int:
    """Number of classes of a classifier; transformers leaves the default, 2, out."""
    return len(settings.get("id2label") or {"0": "", "1": ""})
