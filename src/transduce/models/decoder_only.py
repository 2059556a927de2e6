"""The decoder by itself: a language model (GPT, Llama).

Since 2017: no encoder and no cross-attention, so a layer is the paper's encoder layer with the causal mask; the norm
comes before the sub-layer, with one more at the end of the stack (GPT-2). Llama replaces layer norm by RMSNorm, ReLU by
SwiGLU, added positions by rotations, drops biases, and lets groups of heads share keys and values. Mistral attends to a
window; Qwen3 normalizes queries and keys; Gemma has norms before and after sub-layers, and windows in most layers;
Gemma 2 also bounds the scores of attention and the logits.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from torch import Tensor, nn

from transduce.data.batch import Batch, Stream
from transduce.models.config import DecoderOnlyConfig as DecoderOnlyConfig
from transduce.models.transformer import (
    OutputProjection,
    Transformer,
    initialize,
    layer_config,
    make_embedding,
    make_final_norm,
    make_rotary,
)
from transduce.nn.cache import KVCache, TensorKVCache
from transduce.nn.layers import EncoderLayer


@dataclass
class PromptState:
    """The state of generation: the tokens so far, in KV caches."""

    caches: list[TensorKVCache]
    """One for each layer."""
    position_R: Tensor
    """Number of tokens of each row so far."""
    longest: int
    """The largest of them."""


class DecoderOnly(Transformer):
    """A language model. Training calls `forward`; generation uses `start`, `step` and `reorder`."""

    config: DecoderOnlyConfig

    def __init__(self, config: DecoderOnlyConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding = make_embedding(config, vocab_size)
        self.rotary = make_rotary(config)
        self.local_rotary = make_rotary(config, local=True) if config.local_rotary_base is not None else None
        everywhere = layer_config(config, self.rotary)
        local = replace(everywhere, rotary=self.local_rotary or self.rotary, window=config.window)
        self.decoder = nn.ModuleList(
            EncoderLayer(local if config.is_local(number) else everywhere, causal=True)
            for number in range(config.layers)
        )
        initialize(config, self.decoder, sublayers=2)
        self.decoder_norm = make_final_norm(config)
        self.output = OutputProjection(config, vocab_size)

    def forward(self, batch: Batch) -> Tensor:
        """See `Model`: the hidden vectors of the stream `text`."""
        return deque(self.forward_steps(batch), maxlen=1).pop()

    def forward_steps(self, batch: Batch) -> Iterator[Tensor]:
        """As `forward`, layer by layer: yields the vectors after each, and at last the hidden vectors."""
        text = batch["text"]
        self.reserve(text.segments.longest)
        x_ND = self.embedding(text.ids_N, text.segments.position_N)
        for layer in self.decoder:
            x_ND = layer(x_ND, text.segments)
            yield x_ND
        hidden_ND = self.decoder_norm(x_ND)
        yield hidden_ND if batch.positions_L is None else hidden_ND[batch.positions_L]

    def start(self, prompts: Stream) -> PromptState:
        """Compute the KV caches of the prompts (prefill); each leaves out its last token, the first for `step`."""
        return deque(self.start_steps(prompts), maxlen=1).pop()

    def start_steps(self, prompts: Stream) -> Iterator[PromptState]:
        """As `start`, layer by layer."""
        segments = prompts.segments
        state = PromptState([], segments.lengths_B.long(), segments.longest)
        for k_NHK, v_NHK in self.prefill(prompts):
            state.caches.append(TensorKVCache.of_prompts(k_NHK, v_NHK, segments))
            yield state

    def prefill(self, prompts: Stream) -> Iterator[tuple[Tensor, Tensor]]:
        """The keys and values of prompts in every layer."""
        self.reserve(prompts.segments.longest)
        x_ND = self.embedding(prompts.ids_N, prompts.segments.position_N)
        for layer in self.decoder_layers():
            keys_and_values: list[tuple[Tensor, Tensor]] = []
            x_ND = layer.prefill(x_ND, prompts.segments, keys_and_values)
            yield from keys_and_values

    def step(self, token_R: Tensor, state: PromptState) -> tuple[Tensor, PromptState]:
        """Process one token per row; returns the logits (R, V) of the next token, and the new state."""
        self.reserve(state.longest + 1)
        hidden_RD = self.decode(token_R, state.position_R, state.caches)
        return self.logits(hidden_RD), PromptState(state.caches, state.position_R + 1, state.longest + 1)

    def decode(self, token_R: Tensor, position_R: Tensor, caches: Sequence[KVCache]) -> Tensor:
        """The hidden vectors (R, D) of one new token in each row, given the KV cache of every layer."""
        x_RD = self.embedding(token_R, position_R)
        for layer, cache in zip(self.decoder_layers(), caches, strict=True):
            x_RD = layer.step(x_RD, position_R, cache)
        return self.decoder_norm(x_RD)

    def reorder(self, state: PromptState, index_BW: Tensor) -> PromptState:
        """The state whose prompt b has the old rows index_BW[b]; prompts may be removed, in order."""
        for cache in state.caches:
            cache.reorder(index_BW)
        return PromptState(state.caches, state.position_R.index_select(0, index_BW.flatten()), state.longest)

    def reserve(self, length: int) -> None:
        super().reserve(length)
        if self.local_rotary is not None:
            self.local_rotary.require(length)

    @property
    def longest(self) -> int | None:
        """See `Model`: the number of learned positions."""
        return self.config.max_positions if self.config.positions == "learned" else None

    @property
    def logit_cap(self) -> float | None:
        return self.config.logit_cap

    def layers(self) -> Iterable[nn.Module]:
        return self.decoder

    def decoder_layers(self) -> Iterator[EncoderLayer]:
        return cast(Iterator[EncoderLayer], iter(self.decoder))
