"""Slots on a GPU: the state of search, the caches of all layers, and the steps recorded as CUDA graphs."""

from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.data.batch import Stream
from transduce.engines.gpu.beam import Entry, SlotBeam
from transduce.engines.gpu.cache import SlotCache
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.cuda_graph import capture
from transduce.nn.device import send
from transduce.nn.segments import Segments
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import PAD


class Finished:
    """Tensors on their way to the CPU."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._here, self._event = tensors, None
        if tensors[0].is_cuda:
            self._here = [torch.empty_like(x, device="cpu", pin_memory=True) for x in tensors]
            for here, x in zip(self._here, tensors, strict=True):
                here.copy_(x, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def arrived(self) -> bool:
        """Whether `get` would not wait."""
        return self._event is None or self._event.query()

    def get(self) -> list[Tensor]:
        """The tensors, on the CPU."""
        if self._event:
            self._event.synchronize()
        return self._here


class SlotBatch:
    """A set of slots: the state of search, the caches of all layers, and the recorded step."""

    def __init__(self, model: EncoderDecoder, slots: int, beam: int, source_room: int, places: int) -> None:
        weight_VD = model.output_weight_VD
        self.model, self.source_room = model, source_room
        self._device, cuda = weight_VD.device, weight_VD.is_cuda
        model.reserve(max(source_room, places) if model.longest is None else 1)
        self.beam = SlotBeam(slots, beam, places, model.vocab_size, self._device)
        self._source_length_S = torch.zeros(slots, dtype=torch.int32, device=self._device)
        config = model.config
        self._caches = [
            SlotCache.empty(
                self.beam.ancestor_RP, self.beam.position_R, self._source_length_S, source_room,
                config.num_heads, *config.head_widths, weight_VD.dtype,
            )
            for _ in range(config.decoder_layers)
        ]  # fmt: skip
        self._done_S = torch.zeros(slots, dtype=torch.int32, pin_memory=cuda)
        self._events: deque[torch.cuda.Event] = deque()
        self._step = capture(self._compute_step) if cuda else self._compute_step
        self._encoders: dict[int, tuple[Tensor, Callable[[], None]]] = {}

    def set_search(self, config: SearchConfig) -> None:
        """How hypotheses are ranked, and how many are wanted."""
        self.beam.alpha_1.fill_(config.length_penalty)
        self.beam.nbest_1.fill_(config.nbest)

    def holds(self, source_length: int, limit: int) -> bool:
        """Whether a job has room in a slot."""
        return source_length <= self.source_room and limit < self.beam.places

    def enter(self, slots: list[int], entries: list[Entry], sources: list[list[int]]) -> None:
        """Read these sources, and begin to translate them in these slots."""
        slot_A, lengths = np.array(slots), np.array([len(source) for source in sources])
        slot_and_length = send(np.stack([slot_A, lengths]), self._device)
        self.beam.enter(slot_and_length[0], entries)
        self._source_length_S.index_copy_(0, slot_and_length[0], slot_and_length[1].int())

        tokens = int(lengths.sum())
        room = max(64, 1 << (tokens - 1).bit_length())
        starts = np.cumsum(lengths) - lengths
        inputs, encode = self._encoder(room)
        given = np.full(len(inputs), room, dtype=np.int32)
        src_N, line_N, offsets_B1 = self._inputs(given, room)
        src_N[:tokens] = np.fromiter(chain.from_iterable(sources), np.int32, tokens)
        src_N[tokens:] = PAD
        line_N[:tokens] = np.arange(tokens) + np.repeat(slot_A * self.source_room - starts, lengths)
        line_N[tokens:] = self.beam.slots * self.source_room
        # What is left of the room is filler, in segments of its own; segments left over are empty.
        filler = np.arange(tokens, room, self.source_room)
        offsets_B1[: len(starts)], offsets_B1[len(starts) : len(starts) + len(filler)] = starts, filler
        inputs.copy_(send(given, self._device))
        encode()

    def step(self) -> None:
        """Queue one step of all slots; returns before it is done."""
        self._step()
        if self._device.type == "cuda":
            self._events.append(torch.cuda.Event())
            self._events[-1].record()

    def done(self) -> list[int]:
        """The ticket last finished in each slot, as of the step before the newest: the GPU is never left waiting."""
        while len(self._events) > 1:
            self._events.popleft().synchronize()
        return self._done_S.tolist()

    def wait(self) -> None:
        """Until all steps are done."""
        while self._events:
            self._events.popleft().synchronize()

    def read(self, slots: list[int]) -> Finished:
        """What has ended in these slots, sent off to the CPU."""
        return Finished(self.beam.ended(slots))

    def _compute_step(self) -> None:
        beam = self.beam
        hidden_RD = self.model.decode(beam.token_R, beam.position_R, self._caches)
        beam.advance(_logits(hidden_RD, self.model.output_weight_VD))
        self._done_S.copy_(beam.done_S, non_blocking=True)

    def _encoder(self, tokens: int) -> tuple[Tensor, Callable[[], None]]:
        """Fixed inputs for so many tokens, and the recorded reading of them."""
        if tokens not in self._encoders:
            most_segments = self.beam.slots + tokens // self.source_room + 1
            inputs = torch.zeros(2 * tokens + most_segments + 1, dtype=torch.int32, device=self._device)
            src_N, line_N, offsets_B1 = self._inputs(inputs, tokens)
            # Something to rehearse with: filler alone.
            line_N.fill_(self.beam.slots * self.source_room)
            ends = torch.arange(len(offsets_B1), device=self._device) * self.source_room
            offsets_B1.copy_(ends.clamp(max=tokens))

            def encode() -> None:
                memory_ND = self.model.encode(Stream(src_N, Segments(offsets_B1, self.source_room, tokens)))
                for layer, cache in zip(self.model.decoder_layers(), self._caches, strict=True):
                    cache.remember_source(line_N.long(), layer.cross_attention.kv(memory_ND))

            self._encoders[tokens] = (inputs, capture(encode) if self._device.type == "cuda" else encode)
        return self._encoders[tokens]

    @staticmethod
    def _inputs(table: Any, tokens: int) -> tuple[Any, Any, Any]:
        """The tokens, their lines in the cache, and where segments begin: parts of one array or tensor."""
        return table[:tokens], table[tokens : 2 * tokens], table[2 * tokens :]


def _logits(hidden_RD: Tensor, weight_VD: Tensor) -> Tensor:
    """The pre-softmax projection in float32, whatever the precision of what goes in."""
    if hidden_RD.dtype == torch.float32:
        return hidden_RD @ weight_VD.t()
    return torch.mm(hidden_RD, weight_VD.t(), out_dtype=torch.float32)
