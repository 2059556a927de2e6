"""A batch of slots on a GPU: the state of search, the KV caches, and a step recorded as a CUDA graph."""

import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.data.batch import Stream
from transduce.fast.gpu.beam import Entry, SlotBeam
from transduce.fast.gpu.cache import SlotCache
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.device import send, staging
from transduce.nn.segments import Segments
from transduce.search.engine import Job
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, EOS, PAD
from transduce.training.cuda_graph import capture

SlotModel = EncoderDecoder | DecoderOnly
"""Models whose steps the engine records."""


def begin_of(model: SlotModel) -> int:
    """The number of first source tokens that the decoder reads at the beginning of outputs: the tag, if it does."""
    return int(getattr(model.config, "decoder_tag", False))


class PendingCopy:
    """A tensor that is being copied to the CPU."""

    def __init__(self, tensor: Tensor) -> None:
        self._event = torch.cuda.Event() if tensor.is_cuda else None
        self._copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        self._copy.copy_(tensor, non_blocking=True)
        if self._event:
            self._event.record()

    def ready(self) -> bool:
        """Whether `get` would not wait."""
        return self._event is None or self._event.query()

    def get(self) -> Tensor:
        """The tensor on the CPU; waits for the copy."""
        if self._event:
            self._event.synchronize()
        return self._copy


class SlotBatch:
    """Slots with the state of search, the KV caches of all layers, and the recorded step."""

    def __init__(self, model: SlotModel, slots: int, beam: int, source_capacity: int, positions: int) -> None:
        self.model, self.source_capacity = model, source_capacity
        self._projection = (weight_VD, _) = model.output_weight_VD.contiguous(), model.output_bias_V
        self._device = weight_VD.device
        if isinstance(model, EncoderDecoder):
            self._longest = self._rows_of_slot = source_capacity
        else:  # a prompt has learned positions, if the model has them
            self._longest, self._rows_of_slot = min(positions, model.longest or positions), beam * positions
        model.reserve(max(source_capacity, positions) if model.longest is None else 1)
        self._tables = list(model.buffers())  # what is recorded reads these, even when longer ones have replaced them
        self.beam = SlotBeam(slots, beam, positions, model.vocab_size, self._device, begin_of(model))
        heads, recurrent = model.config.heads, getattr(model.config, "decoder_cell", "attention") == "ssru"
        self._caches = [
            SlotCache.empty(
                self.beam.ancestor_RP, self.beam.position_R, self.beam.source_length_S, source_capacity,
                heads.kv_heads, heads.d_k, heads.d_v, model.config.d_model if recurrent else None, weight_VD.dtype,
            )
            for _ in model.decoder_layers()
        ]  # fmt: skip
        self._config: SearchConfig | None = None
        self._events: deque[torch.cuda.Event] = deque()
        self._step = self._recorded(self._compute_step)
        self._readers: dict[int, tuple[Tensor, Callable[[], None]]] = {}

    def set_search(self, config: SearchConfig) -> None:
        """Set the length penalty, the number of hypotheses and, for sentences that enter, the minimum length."""
        if config != self._config:
            self._config, self.beam.min_length = config, config.min_length
            self.beam.alpha_1.fill_(config.length_penalty)
            self.beam.nbest_1.fill_(config.nbest)

    def holds(self, source_length: int, limit: int) -> bool:
        """Whether a job fits in a slot."""
        return source_length <= self.source_capacity and limit < self.beam.positions

    def read_texts(self, slots: list[int], jobs: Sequence[Job]) -> None:
        """Store the keys and values of sources or, of a decoder-only model, of prompts without their last tokens."""
        begin = self.beam.begin
        if isinstance(self.model, EncoderDecoder):
            texts = [[*job.tokens[begin:], EOS] for job in jobs]
        else:
            texts = [[BOS, *job.prefix][:-1] for job in jobs]
        lengths = np.array([len(text) for text in texts])
        tokens = int(lengths.sum())
        if not tokens:
            return
        capacity = max(64, 1 << (tokens - 1).bit_length())
        starts, first_row_A = np.cumsum(lengths) - lengths, np.array(slots) * self._rows_of_slot
        inputs, read = self._reader(capacity)
        staged = staging(inputs.shape, self._device)
        token_N, cache_row_N, offsets_B1 = self._inputs(staged.numpy(), capacity)
        struct.pack_into(f"{tokens}i", token_N, 0, *chain.from_iterable(texts))  # numpy takes twice as long
        token_N[tokens:] = PAD
        cache_row_N[:tokens] = np.arange(tokens) + np.repeat(first_row_A - starts, lengths)
        cache_row_N[tokens:] = self.beam.slots * self._rows_of_slot
        # The rest of the buffer is filler in separate segments; unused segments are empty.
        filler = np.arange(tokens, capacity, self._longest)
        used = len(starts) + len(filler)
        offsets_B1[: len(starts)], offsets_B1[len(starts) : used], offsets_B1[used:] = starts, filler, capacity
        inputs.copy_(staged, non_blocking=True)
        read()

    def enter(self, entries: Sequence[Entry]) -> None:
        """Start the search of sentences whose texts have been read."""
        self.beam.enter(entries)
        if isinstance(self.model, DecoderOnly):
            slot_A = np.array([entry.slot for entry in entries])
            self.beam.begin_after(send(slot_A, self._device), [entry.prefix for entry in entries])

    def step(self) -> None:
        """Launch one step of all slots; returns before it is done."""
        self._step()
        if self._device.type == "cuda":
            self._events.append(torch.cuda.Event())
            self._events[-1].record()

    def done(self) -> npt.NDArray[np.int32]:
        """The job that finished last in each slot; the last step may not be done, so that the GPU never waits."""
        while len(self._events) > 1:
            self._events.popleft().synchronize()
        return self.beam.done_S.numpy()

    def wait(self) -> None:
        """Wait until all steps are done."""
        while self._events:
            self._events.popleft().synchronize()

    def read(self) -> PendingCopy:
        """Start to copy the finished hypotheses of all slots to the CPU."""
        return PendingCopy(self.beam.finished_XR)

    def _recorded(self, function: Callable[[], None]) -> Callable[[], None]:
        return capture(function) if self._device.type == "cuda" else function

    def _compute_step(self) -> None:
        beam = self.beam
        hidden_RD = self.model.decode(beam.token_R, beam.position_R, self._caches)
        beam.advance(hidden_RD, *self._projection)

    def _reader(self, tokens: int) -> tuple[Tensor, Callable[[], None]]:
        """A fixed input buffer for this many tokens, and the recorded function that reads it."""
        if tokens not in self._readers:
            max_segments = self.beam.slots + tokens // self._longest + 1
            inputs = torch.zeros(2 * tokens + max_segments + 1, dtype=torch.int32, device=self._device)
            token_N, cache_row_N, offsets_B1 = self._inputs(inputs, tokens)
            # The recording needs valid input: only filler.
            cache_row_N.fill_(self.beam.slots * self._rows_of_slot)
            ends = torch.arange(len(offsets_B1), device=self._device) * self._longest
            offsets_B1.copy_(ends.clamp(max=tokens))

            def read() -> None:
                stream = Stream(token_N, Segments(offsets_B1, self._longest, tokens))
                if isinstance(self.model, EncoderDecoder):
                    memory_ND, _ = self.model.encode(stream)
                    for layer, cache in zip(self.model.decoder_layers(), self._caches, strict=True):
                        cache.store_source(cache_row_N, layer.cross_attention.kv(memory_ND))
                else:
                    for (k_NHK, v_NHK), cache in zip(self.model.prefill(stream), self._caches, strict=True):
                        cache.store_prompt(cache_row_N, torch.cat([k_NHK.flatten(1), v_NHK.flatten(1)], dim=1))

            self._readers[tokens] = (inputs, self._recorded(read))
        return self._readers[tokens]

    @staticmethod
    def _inputs(table: Any, tokens: int) -> tuple[Any, Any, Any]:
        """Views of one array or tensor: tokens, their rows in the cache, and the offsets of segments."""
        return table[:tokens], table[tokens : 2 * tokens], table[2 * tokens :]
