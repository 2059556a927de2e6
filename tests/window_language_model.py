"""A tiny language model for tests: the next token depends on the last few tokens only."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.data.batch import Batch, Stream
from transduce.models.model import Model, ModelConfig


@dataclass(frozen=True, kw_only=True)
class WindowConfig(ModelConfig):
    architecture: str = "window"
    d_model: int = 24
    window: int = 3


class WindowModel(Model):
    """A linear layer for each of the last `window` tokens of the segment; a missing one counts as zeros."""

    config: WindowConfig

    def __init__(self, config: WindowConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.back = nn.ModuleList(nn.Linear(config.d_model, config.d_model) for _ in range(config.window))
        self.output = nn.Linear(config.d_model, vocab_size, bias=False)

    @property
    def output_weight_VD(self) -> Tensor:
        return self.output.weight

    def forward(self, batch: Batch) -> Tensor:
        text = batch["text"]
        x_ND = self.embedding(text.ids_N)
        total_ND = torch.zeros_like(x_ND)
        for back, layer in enumerate(self.back):
            inside_N1 = (text.segments.position_N >= back)[:, None].to(x_ND.dtype)
            total_ND = total_ND + layer(x_ND.roll(back, dims=0)) * inside_N1
        hidden_ND = total_ND.tanh()
        return hidden_ND if batch.positions_L is None else hidden_ND[batch.positions_L]

    def start(self, source: Stream) -> list[list[int]]:
        offsets = source.segments.offsets_B1.tolist()
        ids = source.ids_N.tolist()
        return [ids[a:b] for a, b in pairwise(offsets)]

    def step(self, token_R: Tensor, state: list[list[int]]) -> tuple[Tensor, list[list[int]]]:
        state = [[*row, token] for row, token in zip(state, token_R.tolist(), strict=True)]
        last = torch.tensor([0, *(len(row) for row in state)]).cumsum(0)[1:] - 1
        batch = Batch.of(text=state)
        hidden_RD = self.forward(batch)[last]
        return F.linear(hidden_RD, self.output_weight_VD), state

    def reorder(self, state: list[list[int]], index_BW: Tensor) -> list[list[int]]:
        return [list(state[row]) for row in index_BW.flatten().tolist()]
