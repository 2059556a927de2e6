"""The engine for CUDA: float16, every step one CUDA graph, sentences that enter and leave a running batch."""

import copy
from collections import deque
from collections.abc import Sequence
from itertools import chain, repeat

import torch

from transduce.engines.engine import Job, fast_engine_limits, output_limit
from transduce.engines.gpu.beam import Entry, hypotheses
from transduce.engines.gpu.slot_batch import Finished, SlotBatch
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.model import Model
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import EOS

MOST_ROWS = 4096
_REFILL = 8
"""Empty slots are filled again once one in so many is empty."""
_MEMORY_SHARE = 0.5
"""Of what is free, for the caches of one set of slots."""
_MOST_SLOT_BATCHES = 16
"""Kept to be used again: enough for all sizes with one beam, as beams are the clients' choice."""
_TICKETS = range(1, 2**31)
"""Fit 32 bits; when all are used, the first are long free."""


class GpuEngine:
    """A float16 copy of the model and its sets of slots, each set recorded once and used again."""

    name = "gpu"

    def __init__(
        self, model: EncoderDecoder, dtype: torch.dtype = torch.float16, batch_tokens: int | None = None
    ) -> None:
        self.batch_tokens = batch_tokens
        """Source tokens, times the beam, that are worked on at once; as many as fit unless given."""
        self.model = copy.deepcopy(model).eval()
        for weight in self.model.parameters():
            weight.data = weight.data.to(dtype)  # positions stay float32 where they are not learnt
        self._slot_batches: dict[tuple[int, int], SlotBatch] = {}
        """By slots and beam; what was used last comes last."""
        self._most_rows = MOST_ROWS
        self.tickets = chain.from_iterable(repeat(_TICKETS))  # boards are used again: no two jobs may share one

    @property
    def description(self) -> str:
        """See `Engine`."""
        return f"gpu ({str(self.model.output_weight_VD.dtype).removeprefix('torch.')}, CUDA graphs)"

    @staticmethod
    def supports(model: Model, options: SearchConfig) -> str | None:
        """See `Engine`."""
        return fast_engine_limits(model, options)

    def begin(self, config: SearchConfig) -> "GpuSession":
        """See `Engine`."""
        return GpuSession(self, config)

    def current(self) -> torch.cuda.device_of:
        """Within, the model's GPU is the current one, whichever thread this is."""
        return torch.cuda.device_of(self.model.output_weight_VD)

    def slot_batch(self, jobs: int, config: SearchConfig, source_room: int, places: int) -> SlotBatch:
        """Slots for so many jobs, where memory and MOST_ROWS allow, with room for texts of these lengths."""
        rows = min(self._most_rows, self.batch_tokens // source_room if self.batch_tokens else MOST_ROWS)
        most = max(rows // config.beam, 1)
        slots = min(1 << (jobs - 1).bit_length(), 1 << (most.bit_length() - 1))
        found = self._slot_batches.pop((slots, config.beam), None)
        if found is None or found.source_room < source_room or found.beam.places < places:
            del found
            while len(self._slot_batches) >= _MOST_SLOT_BATCHES:
                del self._slot_batches[next(iter(self._slot_batches))]
            source_room, places = 1 << (source_room - 1).bit_length(), -(-places // 64) * 64
            if self.model.longest:  # learnt positions reach no further
                source_room = min(source_room, self.model.longest + 1)
            rooms = (source_room, places)
            found = self._new_slot_batch(self._that_fit(slots, config.beam, *rooms), config.beam, *rooms)
        self._slot_batches[slots, config.beam] = found
        return found

    def _new_slot_batch(self, slots: int, beam: int, source_room: int, places: int) -> SlotBatch:
        """A board of so many slots; of fewer, where memory does not hold them."""
        while True:
            try:
                return SlotBatch(self.model, slots, beam, source_room, places)
            except torch.OutOfMemoryError:
                if slots == 1:
                    raise
            slots //= 2
            self._most_rows = slots * beam  # it will not be tried again
            torch.cuda.empty_cache()  # out here, where the error's traceback no longer holds what the attempt took

    def _that_fit(self, slots: int, beam: int, source_room: int, places: int) -> int:
        device = self.model.device
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
        self._slots: SlotBatch | None = None
        self._running: dict[int, tuple[int, int]] = {}
        """Slot to key and ticket."""
        self._free: list[int] = []
        self._leaving: list[tuple[list[int], Finished]] = []

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """See `Session`."""
        longest = self._engine.model.longest
        self._waiting.extend((key, job, output_limit(job, self._config, longest)) for key, job in jobs)

    def drop(self, keys: Sequence[int]) -> None:
        """See `Session`."""
        gone = set(keys)
        self._waiting = deque(item for item in self._waiting if item[0] not in gone)
        slots = [slot for slot, (key, _) in self._running.items() if key in gone]
        if self._slots and slots:
            with torch.inference_mode(), self._engine.current():
                self._slots.beam.leave(slots)
            for slot in slots:
                del self._running[slot]
            self._free += slots

    @property
    def waiting(self) -> int:
        """See `Session`."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """See `Session`."""
        return bool(self._waiting or self._running or self._leaving)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """See `Session`."""
        with torch.inference_mode(), self._engine.current():
            return self._step()

    def _step(self) -> list[tuple[int, list[Hypothesis]]]:
        done = self._done()
        board = self._slots
        enough = board is not None and len(self._free) + len(done) >= max(board.beam.slots // _REFILL, 1)
        if board and done and (enough or len(done) == len(self._running)):
            self._leaving.append(([self._running.pop(slot)[0] for slot in done], board.read(done)))
            self._free += done
        if self._waiting and (enough or not self._running):
            self._fill()
        if self._slots and self._running:
            if self._steps_left:
                self._slots.step()
                self._steps_left -= 1
            else:
                self._slots.wait()
        return self._arrived()

    def _done(self) -> list[int]:
        if not (self._slots and self._running):
            return []
        done_S = self._slots.done()
        return [slot for slot, (_, ticket) in self._running.items() if done_S[slot] == ticket]

    def _fill(self) -> None:
        """Let waiting jobs into the free slots; onto a board of the right size where none is running."""
        if not self._running:
            source_room = max(len(job.tokens) for _, job, _ in self._waiting) + 1
            places = max(limit for _, _, limit in self._waiting) + 1
            self._slots = None  # it need not lie in memory beside a larger one
            self._slots = self._engine.slot_batch(len(self._waiting), self._config, source_room, places)
            self._slots.set_search(self._config)
            self._free = list(range(self._slots.beam.slots))
        assert self._slots
        slots, entries, sources = [], [], []
        while self._waiting and self._free:
            key, job, limit = self._waiting[0]
            if not self._slots.holds(len(job.tokens) + 1, limit):
                break  # it waits for a larger board
            self._waiting.popleft()
            slot, ticket = self._free.pop(), next(self._engine.tickets)
            self._running[slot] = (key, ticket)
            slots.append(slot)
            entries.append(Entry(ticket, limit, job.prefix))
            sources.append([*job.tokens, EOS])
        if entries:
            self._slots.enter(slots, entries, sources)
            self._steps_left = max(self._steps_left, *(entry.limit + 1 for entry in entries))

    def _arrived(self) -> list[tuple[int, list[Hypothesis]]]:
        """Outputs that have reached the CPU; waits for them where nothing else is left to do."""
        found: list[tuple[int, list[Hypothesis]]] = []
        while self._leaving and (self._leaving[0][1].arrived() or not self._running):
            keys, finished = self._leaving.pop(0)
            found += zip(keys, hypotheses(finished.get(), self._config.nbest), strict=True)
        return found
