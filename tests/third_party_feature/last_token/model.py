"""A language model without attention: the mean of the embeddings of the last tokens, and one layer."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.data.batch import Batch
from transduce.models.model import Model, ModelConfig


@dataclass(frozen=True, kw_only=True)
class WindowConfig(ModelConfig):
    """The model, if architecture is window."""

    architecture: str = "window"
    window: int = 2
    """Number of tokens that a prediction depends on."""


class WindowModel(Model):
    """Sees the last `window` tokens of a segment."""

    config: WindowConfig

    def __init__(self, config: WindowConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.inner = nn.Linear(config.d_model, config.d_model)

    @property
    def output_weight_VD(self) -> Tensor:
        return self.embedding.weight

    def forward(self, batch: Batch) -> Tensor:
        text = batch["text"]
        x_ND = self.embedding(text.ids_N)
        total_ND, seen_N1 = x_ND, torch.ones_like(x_ND[:, :1])
        for back in range(1, self.config.window):
            inside_N1 = (text.segments.position_N >= back)[:, None].to(x_ND.dtype)
            total_ND, seen_N1 = total_ND + x_ND.roll(back, dims=0) * inside_N1, seen_N1 + inside_N1
        hidden_ND = self.inner(total_ND / seen_N1).tanh()
        return hidden_ND if batch.positions_L is None else hidden_ND[batch.positions_L]
