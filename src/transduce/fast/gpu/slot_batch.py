"""A batch of slots on a GPU: the state of search, the KV caches, and a step recorded as a CUDA graph."""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
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
from transduce.nn.device import send
from transduce.nn.segments import Segments, pack_tokens
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, PAD
from transduce.training.cuda_graph import capture

SlotModel = EncoderDecoder | DecoderOnly
"""Models whose steps the engine records."""


def begin_of(model: SlotModel) -> int:
    """The number of first source tokens that the decoder reads at the beginning of outputs: the tag, if it does."""
    return int(getattr(model.config, "decoder_tag", False))


class PendingCopy:
    """Tensors that are being copied to the CPU."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._copies, self._event = tensors, None
        if tensors[0].is_cuda:
            self._copies = [torch.empty_like(x, device="cpu", pin_memory=True) for x in tensors]
            for copy, x in zip(self._copies, tensors, strict=True):
                copy.copy_(x, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def ready(self) -> bool:
        """Whether `get` would not wait."""
        return self._event is None or self._event.query()

    def get(self) -> list[Tensor]:
        """The tensors on the CPU; waits for the copy."""
        if self._event:
            self._event.synchronize()
        return self._copies


class SlotBatch:
    """Slots with the state of search, the KV caches of all layers, and the recorded step."""

    def __init__(self, model: SlotModel, slots: int, beam: int, source_capacity: int, positions: int) -> None:
        self.model, self.source_capacity = model, source_capacity
        self._projection = (weight_VD, _) = model.output_weight_VD.contiguous(), model.output_bias_V
        self._device, cuda = weight_VD.device, weight_VD.is_cuda
        model.reserve(max(source_capacity, positions) if model.longest is None else 1)
        self.beam = SlotBeam(slots, beam, positions, model.vocab_size, self._device, begin_of(model))
        self._source_length_S = torch.zeros(slots, dtype=torch.int32, device=self._device)
        heads, recurrent = model.config.heads, getattr(model.config, "decoder_cell", "attention") == "ssru"
        self._caches = [
            SlotCache.empty(
                self.beam.ancestor_RP, self.beam.position_R, self._source_length_S, source_capacity,
                heads.kv_heads, heads.d_k, heads.d_v, model.config.d_model if recurrent else None, weight_VD.dtype,
            )
            for _ in model.decoder_layers()
        ]  # fmt: skip
        self._done_S = torch.zeros(slots, dtype=torch.int32, pin_memory=cuda)
        self._events: deque[torch.cuda.Event] = deque()
        self._step = capture(self._compute_step) if cuda else self._compute_step
        self._encoders: dict[int, tuple[Tensor, Callable[[], None]]] = {}

    def set_search(self, config: SearchConfig) -> None:
        """Set the length penalty, the number of hypotheses and, for sentences that enter, the minimum length."""
        self.beam.min_length = config.min_length
        self.beam.alpha_1.fill_(config.length_penalty)
        self.beam.nbest_1.fill_(config.nbest)

    def holds(self, source_length: int, limit: int) -> bool:
        """Whether a job fits in a slot."""
        return source_length <= self.source_capacity and limit < self.beam.positions

    def enter(self, slots: list[int], sources: list[list[int]], entries: Iterable[Entry]) -> None:
        """Encode these sources and start their search in these slots; a decoder-only model reads only prefixes.

        The entries are made while the GPU encodes.
        """
        slot_A, lengths = np.array(slots), np.array([len(source) for source in sources])
        slot_and_length = send(np.stack([slot_A, lengths]), self._device)
        if isinstance(self.model, EncoderDecoder):
            self._source_length_S.index_copy_(0, slot_and_length[0], slot_and_length[1].int())
            self._encode(slot_A, lengths, sources)
        entries = list(entries)
        self.beam.enter(slot_and_length[0], entries)
        if isinstance(self.model, DecoderOnly):
            prompts = [entry.prefix for entry in entries]
            self._prefill(self.model, slot_A, prompts)
            self.beam.begin_after(slot_and_length[0], prompts)

    def _encode(self, slot_A: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], sources: list[list[int]]) -> None:
        tokens = int(lengths.sum())
        capacity = max(64, 1 << (tokens - 1).bit_length())
        starts = np.cumsum(lengths) - lengths
        inputs, encode = self._encoder(capacity)
        values = np.full(len(inputs), capacity, dtype=np.int32)
        src_N, cache_row_N, offsets_B1 = self._inputs(values, capacity)
        struct.pack_into(f"{tokens}i", src_N, 0, *chain.from_iterable(sources))  # numpy takes twice as long
        src_N[tokens:] = PAD
        cache_row_N[:tokens] = np.arange(tokens) + np.repeat(slot_A * self.source_capacity - starts, lengths)
        cache_row_N[tokens:] = self.beam.slots * self.source_capacity
        # The rest of the buffer is filler in separate segments; unused segments are empty.
        filler = np.arange(tokens, capacity, self.source_capacity)
        offsets_B1[: len(starts)], offsets_B1[len(starts) : len(starts) + len(filler)] = starts, filler
        inputs.copy_(send(values, self._device))
        encode()

    def _prefill(self, model: DecoderOnly, slot_A: npt.NDArray[np.int64], prompts: Sequence[Sequence[int]]) -> None:
        """Store the keys and values of prompts, without the last token of each, in the first rows of their slots."""
        read = [[BOS, *prompt][:-1] for prompt in prompts]
        if not any(read):
            return
        lengths = np.array([len(tokens) for tokens in read])
        starts, first_rows = np.cumsum(lengths) - lengths, slot_A * self.beam.beam * self.beam.positions
        cache_row_N = send(np.arange(lengths.sum()) + np.repeat(first_rows - starts, lengths), self._device)
        ids_N, segments = pack_tokens(read, self._device)
        for (k_NHK, v_NHK), cache in zip(model.prefill(Stream(ids_N, segments)), self._caches, strict=True):
            cache.store_prompt(cache_row_N, torch.cat([k_NHK.flatten(1), v_NHK.flatten(1)], dim=1))

    def step(self) -> None:
        """Launch one step of all slots; returns before it is done."""
        self._step()
        if self._device.type == "cuda":
            self._events.append(torch.cuda.Event())
            self._events[-1].record()

    def done(self) -> list[int]:
        """The job that finished last in each slot, as of the last step but one, so that the GPU never waits."""
        while len(self._events) > 1:
            self._events.popleft().synchronize()
        return self._done_S.tolist()

    def wait(self) -> None:
        """Wait until all steps are done."""
        while self._events:
            self._events.popleft().synchronize()

    def read(self, slots: list[int]) -> PendingCopy:
        """Start to copy the finished hypotheses of these slots to the CPU."""
        return PendingCopy(self.beam.finished(slots))

    def _compute_step(self) -> None:
        beam = self.beam
        hidden_RD = self.model.decode(beam.token_R, beam.position_R, self._caches)
        beam.advance(hidden_RD, *self._projection)
        self._done_S.copy_(beam.done_S, non_blocking=True)

    def _encoder(self, tokens: int) -> tuple[Tensor, Callable[[], None]]:
        """A fixed input buffer for this many tokens, and the recorded encoder that reads it."""
        model = self.model
        assert isinstance(model, EncoderDecoder)
        if tokens not in self._encoders:
            max_segments = self.beam.slots + tokens // self.source_capacity + 1
            inputs = torch.zeros(2 * tokens + max_segments + 1, dtype=torch.int32, device=self._device)
            src_N, cache_row_N, offsets_B1 = self._inputs(inputs, tokens)
            # The recording needs valid input: only filler.
            cache_row_N.fill_(self.beam.slots * self.source_capacity)
            ends = torch.arange(len(offsets_B1), device=self._device) * self.source_capacity
            offsets_B1.copy_(ends.clamp(max=tokens))

            def encode() -> None:
                memory_ND, _ = model.encode(Stream(src_N, Segments(offsets_B1, self.source_capacity, tokens)))
                for layer, cache in zip(model.decoder_layers(), self._caches, strict=True):
                    cache.store_source(cache_row_N.long(), layer.cross_attention.kv(memory_ND))

            self._encoders[tokens] = (inputs, capture(encode) if self._device.type == "cuda" else encode)
        return self._encoders[tokens]

    @staticmethod
    def _inputs(table: Any, tokens: int) -> tuple[Any, Any, Any]:
        """Views of one array or tensor: tokens, their rows in the cache, and the offsets of segments."""
        return table[:tokens], table[tokens : 2 * tokens], table[2 * tokens :]
