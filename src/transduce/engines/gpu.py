"""The engine for CUDA: bfloat16, every step one CUDA graph, sentences that enter and leave a running batch."""

import copy
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, count

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.engines.engine import Job, output_limit
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.segments import Segments
from transduce.nn.slot_cache import SlotCache
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.search.slot_beam import Entry, SlotBeam, hypotheses
from transduce.text.tokenizer import EOS, PAD

MOST_ROWS = 4096
_WIDEST_BEAM = 16
_REFILL = 8
"""Empty slots are filled again once one in so many is empty."""
_MEMORY_SHARE = 0.5
"""Of what is free, for the caches of one set of slots."""


class GpuEngine:
    """A bfloat16 copy of the model and its sets of slots, each set recorded once and used again."""

    name = "gpu"

    def __init__(self, model: EncoderDecoder, dtype: torch.dtype = torch.bfloat16) -> None:
        self.model = copy.deepcopy(model).eval()
        for weight in self.model.parameters():
            weight.data = weight.data.to(dtype)  # positions stay float32 where they are not learnt
        self._boards: dict[tuple[int, int], Board] = {}
        self.tickets = count(1)  # boards are used again: no two jobs may share one

    def takes(self, config: SearchConfig) -> bool:
        """As in `Engine`: greedy and beam search, with beams that fit a kernel."""
        return not config.sample and config.beam <= _WIDEST_BEAM

    def begin(self, config: SearchConfig) -> "GpuSession":
        """As in `Engine`."""
        return GpuSession(self, config)

    def board(self, jobs: int, config: SearchConfig, source_room: int, places: int) -> "Board":
        """Slots for so many jobs, where memory and MOST_ROWS allow, with room for texts of these lengths."""
        slots = 1 << max(min(jobs, max(MOST_ROWS // config.beam, 1)) - 1, 0).bit_length()
        found = self._boards.get((slots, config.beam))
        if found is None or found.source_room < source_room or found.beam.places < places:
            self._boards.pop((slots, config.beam), None)
            del found
            rooms = (1 << (source_room - 1).bit_length(), -(-places // 64) * 64)
            slots = self._that_fit(slots, config.beam, *rooms)
            found = self._boards[slots, config.beam] = Board(self.model, slots, config.beam, *rooms)
        return found

    def _that_fit(self, slots: int, beam: int, source_room: int, places: int) -> int:
        device = self.model.embedding.weight_VD.device
        if device.type != "cuda":
            return slots
        config, (d_k, d_v) = self.model.config, self.model.config.head_widths
        line = config.decoder_layers * config.num_heads * (d_k + d_v) * 2
        logits = 6 * beam * self.model.vocab_size
        each = (beam * places + source_room) * line + logits
        room = _MEMORY_SHARE * torch.cuda.mem_get_info(device)[0]
        while slots > 1 and slots * each > room:
            slots //= 2
        return slots


class GpuSession:
    """Keeps the slots of a board full."""

    def __init__(self, engine: GpuEngine, config: SearchConfig) -> None:
        self._engine, self._config = engine, config
        self._waiting: deque[tuple[int, Job, int]] = deque()
        """Key, job, and tokens its output may have."""
        self._steps_left = 0
        """No job in a slot takes more."""
        self._board: Board | None = None
        self._running: dict[int, tuple[int, int]] = {}
        """Slot to key and ticket."""
        self._free: list[int] = []
        self._leaving: list[tuple[list[int], Finished]] = []

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """As in `Session`."""
        longest = self._engine.model.longest
        self._waiting.extend((key, job, output_limit(job, self._config, longest)) for key, job in jobs)

    @torch.inference_mode()
    def drop(self, keys: Sequence[int]) -> None:
        """As in `Session`."""
        gone = set(keys)
        self._waiting = deque(item for item in self._waiting if item[0] not in gone)
        slots = [slot for slot, (key, _) in self._running.items() if key in gone]
        if self._board and slots:
            self._board.beam.leave(slots)
            for slot in slots:
                del self._running[slot]
            self._free += slots

    @property
    def busy(self) -> bool:
        """As in `Session`."""
        return bool(self._waiting or self._running or self._leaving)

    @torch.inference_mode()
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """As in `Session`."""
        done = self._done()
        board = self._board
        enough = board is not None and len(self._free) + len(done) >= max(board.beam.slots // _REFILL, 1)
        if board and done and (enough or len(done) == len(self._running)):
            self._leaving.append(([self._running.pop(slot)[0] for slot in done], board.read(done)))
            self._free += done
        if self._waiting and (enough or not self._running):
            self._fill()
        if self._board and self._running:
            if self._steps_left:
                self._board.step()
                self._steps_left -= 1
            else:
                self._board.wait()
        return self._arrived()

    def _done(self) -> list[int]:
        if not (self._board and self._running):
            return []
        done_S = self._board.done()
        return [slot for slot, (_, ticket) in self._running.items() if done_S[slot] == ticket]

    def _fill(self) -> None:
        """Let waiting jobs into the free slots; onto a board of the right size where none is running."""
        if not self._running:
            source_room = max(len(job.tokens) for _, job, _ in self._waiting) + 1
            places = max(limit for _, _, limit in self._waiting) + 1
            self._board = self._engine.board(len(self._waiting), self._config, source_room, places)
            self._board.set_search(self._config)
            self._free = list(range(self._board.beam.slots))
        assert self._board
        entries, sources = [], []
        while self._waiting and self._free:
            key, job, limit = self._waiting[0]
            if not self._board.holds(len(job.tokens) + 1, limit):
                break  # it waits for a larger board
            self._waiting.popleft()
            slot, ticket = self._free.pop(), next(self._engine.tickets)
            self._running[slot] = (key, ticket)
            entries.append(Entry(slot, ticket, limit, job.prefix))
            sources.append([*job.tokens, EOS])
        if entries:
            self._board.enter(entries, sources)
            self._steps_left = max(self._steps_left, *(entry.limit + 1 for entry in entries))

    def _arrived(self) -> list[tuple[int, list[Hypothesis]]]:
        """Outputs that have reached the CPU; waits for them where nothing else is left to do."""
        found: list[tuple[int, list[Hypothesis]]] = []
        while self._leaving and (self._leaving[0][1].arrived() or not self._running):
            keys, finished = self._leaving.pop(0)
            found += zip(keys, hypotheses(finished.get(), self._config.nbest), strict=True)
        return found


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


class Board:
    """A set of slots: the state of search, the caches of all layers, and the recorded step."""

    def __init__(self, model: EncoderDecoder, slots: int, beam: int, source_room: int, places: int) -> None:
        weight_VD = model.embedding.weight_VD
        self.model, self.source_room = model, source_room
        self._device, cuda = weight_VD.device, weight_VD.is_cuda
        model.embedding.positions.require(max(source_room, places) if model.longest is None else 1)
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
        self._step = recorded(self._compute_step) if cuda else self._compute_step
        self._encoders: dict[int, tuple[list[Tensor], Callable[[], None]]] = {}

    def set_search(self, config: SearchConfig) -> None:
        """How hypotheses are ranked, and how many are wanted."""
        self.beam.alpha_1.fill_(config.length_penalty)
        self.beam.nbest_1.fill_(config.nbest)

    def holds(self, source_length: int, limit: int) -> bool:
        """Whether a job has room in a slot."""
        return source_length <= self.source_room and limit < self.beam.places

    def enter(self, entries: list[Entry], sources: list[list[int]]) -> None:
        """Read these sources, and begin to translate them."""
        self.beam.enter(entries)
        slots, lengths = np.array([entry.slot for entry in entries]), np.array([len(source) for source in sources])
        tokens = int(lengths.sum())
        room = max(64, 1 << (tokens - 1).bit_length())
        starts = np.concatenate([[0], np.cumsum(lengths)])
        src_N = np.full(room, PAD)
        src_N[:tokens] = np.fromiter(chain.from_iterable(sources), np.int64, tokens)
        line_N = np.full(room, self.beam.slots * self.source_room)
        line_N[:tokens] = np.arange(tokens) + np.repeat(slots * self.source_room - starts[:-1], lengths)
        # What is left of the room is filler: segments of its own, then empty ones, up to a fixed number of each.
        offsets = [*starts.tolist(), *range(tokens + self.source_room, room, self.source_room), room]
        segments = self.beam.slots + room // self.source_room + 2
        offsets += [room] * (segments + 1 - len(offsets))
        length_S = np.zeros((2, len(slots)), np.int64)
        length_S[0], length_S[1] = slots, lengths
        slot_A, length_A = self._to_device(length_S)
        self._source_length_S[slot_A] = length_A.int()
        inputs, encode = self._encoder(room, len(offsets))
        for static, given in zip(inputs, (src_N, line_N, np.array(offsets)), strict=True):
            static.copy_(self._to_device(given))
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
        beam.advance(_logits(hidden_RD, self.model.embedding.weight_VD))
        self._done_S.copy_(beam.done_S, non_blocking=True)

    def _encoder(self, tokens: int, offsets: int) -> tuple[list[Tensor], Callable[[], None]]:
        """Fixed inputs for so many tokens, and the recorded reading of them."""
        if tokens not in self._encoders:
            src_N, line_N = (torch.zeros(tokens, dtype=torch.int64, device=self._device) for _ in range(2))
            offsets_B1 = torch.zeros(offsets, dtype=torch.int32, device=self._device)
            line_N.fill_(self.beam.slots * self.source_room)
            ends = torch.arange(offsets, device=self._device) * self.source_room
            offsets_B1.copy_(ends.clamp(max=tokens))  # something to rehearse with: filler alone

            def encode() -> None:
                memory_ND = self.model.encode(src_N, Segments(offsets_B1, self.source_room, tokens))
                for layer, cache in zip(self.model.decoder_layers(), self._caches, strict=True):
                    cache.remember_source(line_N, layer.cross_attention.kv(memory_ND))

            inputs = [src_N, line_N, offsets_B1]
            self._encoders[tokens] = (inputs, recorded(encode) if self._device.type == "cuda" else encode)
        return self._encoders[tokens]

    def _to_device(self, x: npt.NDArray[np.int64]) -> Tensor:
        found = torch.from_numpy(x)
        return found.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else found


def recorded(function: Callable[[], None]) -> Callable[[], None]:
    """The function as a CUDA graph, after one run in which kernels are compiled and libraries set up."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        function()
    return graph.replay


def _logits(hidden_RD: Tensor, weight_VD: Tensor) -> Tensor:
    """The pre-softmax projection in float32, whatever the precision of what goes in."""
    if hidden_RD.dtype == torch.float32:
        return hidden_RD @ weight_VD.t()
    return torch.mm(hidden_RD, weight_VD.t(), out_dtype=torch.float32)
