"""The `Model` contract: the interface of a model to the rest of the package."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.data.batch import Batch
from transduce.models.config import ModelConfig as ModelConfig
from transduce.models.merged_weights import Base
from transduce.models.weight_tensors import module_arrays
from transduce.models.weights_file import Arrays, Shapes
from transduce.nn.attention import soft_cap
from transduce.nn.loss import smoothed_cross_entropy
from transduce.nn.low_rank import LowRank


class Model(nn.Module, ABC):
    """A model maps a batch to hidden vectors; the loss or the search multiplies them with `output_weight_VD`.

    A model that generates text also has the three calls of `search.decoder.Decoder`: `start`, `step` and `reorder`.
    """

    config: ModelConfig
    vocab_size: int
    cross_entropy = staticmethod(smoothed_cross_entropy)
    """The loss of hidden vectors, the output projection included."""
    low_rank: LowRank | None = None
    """The low-rank updates of its weights, if only these are trained."""
    base: Base | None = None
    """The model that these are updates of."""

    @property
    def trained(self) -> "Model | LowRank":
        """What is trained, and stored in checkpoints: the weights, or low-rank updates of them."""
        return self.low_rank or self

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The hidden vectors (L, D) at the positions of the labels (`Batch.positions_L`)."""

    @property
    @abstractmethod
    def output_weight_VD(self) -> Tensor:
        """The output projection: hidden vectors times its transpose are the logits."""

    @property
    def output_bias_V(self) -> Tensor | None:
        """The bias of the logits; None if there is none."""
        return None

    @property
    def logit_cap(self) -> float | None:
        """The bound of the logits (`soft_cap`); None if there is none."""
        return None

    def logits(self, hidden_LD: Tensor) -> Tensor:
        return soft_cap(F.linear(hidden_LD, self.output_weight_VD, self.output_bias_V), self.logit_cap)

    @property
    def longest(self) -> int | None:
        """Upper bound on the tokens of a text, without markers; None if there is no bound."""
        return None

    def reserve(self, length: int) -> None:
        """Make sure that sequences of this length can be computed, before the model is copied or recorded."""

    def layers(self) -> Iterable[nn.Module]:
        """The modules that are sharded separately; none if the model is sharded as one unit."""
        return ()

    @property
    def alignment_attention(self) -> nn.Module | None:
        """The cross-attention that aligns output tokens with source tokens; None if the model has none."""
        return None

    def pair_weights(self, weights_BHTS: Tensor) -> Tensor:
        """The weights of `alignment_attention` for output tokens and end marker over source tokens and end marker."""
        return weights_BHTS

    # The rest of `AnyModel`.

    @property
    def generates(self) -> bool:
        return hasattr(self, "step")

    @property
    def aligns(self) -> bool:
        return self.alignment_attention is not None

    @property
    def device_type(self) -> str:
        return self.device.type

    @property
    def is_built(self) -> bool:
        return True

    def module(self) -> "Model":
        return self

    def arrays(self, shapes: Shapes) -> Arrays:
        return module_arrays(self.state_dict())

    def side_file(self, name: str, read: Callable[..., Any]) -> None:
        """A module has no folder, so it has no files of engines."""

    @property
    def captures(self) -> bool:
        """Whether training on a GPU records the model as a CUDA graph, for which all batches have the same shapes."""
        return True

    @property
    def device(self) -> torch.device:
        return self.output_weight_VD.device

    @property
    def parameters_count(self) -> int:
        """Number of parameters; a shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())
