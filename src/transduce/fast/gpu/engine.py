"""The engine for CUDA: float16, one CUDA graph per step, continuous batching."""

import copy
from collections import deque
from collections.abc import Sequence
from itertools import chain, repeat

import numpy as np
import torch

from transduce.fast.gpu.beam import Entry, hypotheses
from transduce.fast.gpu.slot_batch import PendingCopy, SlotBatch, SlotModel, begin_of
from transduce.fast.kernels.fuse import fits, fuse
from transduce.fast.limits import attention_limits, missing_bits, search_limits
from transduce.models.any_model import AnyModel
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.ensemble import Ensemble
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Job, output_limit
from transduce.search.options import SearchConfig

MOST_ROWS = 4096
"""Upper bound on slots times beam."""
_REFILL = 8
"""Slots are refilled when at least 1 / _REFILL of them are empty."""
_FIRST_TOKENS, _MOST_TOKENS = 4096, 16384
"""Tokens of the first sources or prompts that are read; the CPU prepares the next ones meanwhile, twice as many."""
_MEMORY_SHARE = 0.5
"""Share of the free memory for the KV caches of one slot batch."""
_MAX_SLOT_BATCHES = 16
"""Slot batches kept for reuse: enough for all sizes with one beam. Clients choose the beam, so a bound is needed."""
_JOB_IDS = range(1, 2**31)
"""They fit in 32 bits; when all have been used, they repeat."""


class GpuEngine:
    """A float16 copy of the model and its slot batches, each of which is recorded once and reused."""

    name = "gpu"
    several_sessions = False  # sessions with the same sizes would share a slot batch
    mixed_options = False

    def __init__(self, model: SlotModel, dtype: torch.dtype = torch.float16, batch_tokens: int | None = None) -> None:
        self.batch_tokens = batch_tokens
        """See `Engine`."""
        self.model = copy.deepcopy(model).eval()
        for weight in self.model.parameters():
            weight.data = weight.data.to(dtype)  # sinusoids, which are a buffer, stay float32
        if fits(self.model):
            fuse(self.model)
        self._slot_batches: dict[tuple[int, int], SlotBatch] = {}
        """By number of slots and beam; the most recently used is last."""
        self._most_rows = MOST_ROWS
        self.job_ids = chain.from_iterable(repeat(_JOB_IDS))  # unique, because slot batches are reused

    @property
    def description(self) -> str:
        """See `Engine`."""
        return f"gpu ({str(self.model.output_weight_VD.dtype).removeprefix('torch.')}, CUDA graphs)"

    @staticmethod
    def supports(model: AnyModel, options: SearchConfig, *, constrained: bool = False) -> str | None:
        """See `Engine`."""
        if not isinstance(model, EncoderDecoder | DecoderOnly | Ensemble):
            return f"no models of the architecture {model.config.architecture}"
        if reason := search_limits(model.config, options, constrained=constrained):
            return reason
        if isinstance(model, DecoderOnly) and model.config.window is not None:
            return "no attention to a window (model.window)"
        if isinstance(model, DecoderOnly) and (model.config.score_cap or model.config.logit_cap):
            return "no bounds of scores or logits (model.score_cap, model.logit_cap)"
        return attention_limits(model.config) if isinstance(model, EncoderDecoder) else None

    def start_session(self, config: SearchConfig) -> "GpuSession":
        """See `Engine`."""
        return GpuSession(self, config)

    def device_context(self) -> torch.cuda.device_of:
        """A context in which the model's GPU is the current device, in any thread."""
        return torch.cuda.device_of(self.model.output_weight_VD)

    def slot_batch(self, jobs: int, config: SearchConfig, source_capacity: int, positions: int) -> SlotBatch:
        """Slots for this many jobs, or as many as memory and MOST_ROWS allow, with these capacities in tokens."""
        rows = min(self._most_rows, self.batch_tokens // source_capacity if self.batch_tokens else MOST_ROWS)
        max_slots = max(rows // config.beam, 1)
        slots = min(1 << (jobs - 1).bit_length(), 1 << (max_slots.bit_length() - 1))
        batch = self._slot_batches.pop((slots, config.beam), None)
        if batch is None or batch.source_capacity < source_capacity or batch.beam.positions < positions:
            del batch
            while len(self._slot_batches) >= _MAX_SLOT_BATCHES:
                del self._slot_batches[next(iter(self._slot_batches))]
            source_capacity, positions = 1 << (source_capacity - 1).bit_length(), -(-positions // 64) * 64
            if self.model.longest is not None:  # learned positions are limited
                source_capacity = min(source_capacity, self.model.longest + begin_of(self.model) + 1)
            sizes = (config.beam, source_capacity, positions)
            batch = self._new_slot_batch(self._slots_that_fit(slots, *sizes), *sizes)
        self._slot_batches[slots, config.beam] = batch
        return batch

    def _new_slot_batch(self, slots: int, beam: int, source_capacity: int, positions: int) -> SlotBatch:
        """A batch of this many slots, or of fewer if they do not fit in memory."""
        while True:
            try:
                return SlotBatch(self.model, slots, beam, source_capacity, positions)
            except torch.OutOfMemoryError:
                if slots == 1:
                    raise
            slots //= 2
            self._most_rows = slots * beam  # the larger batch is not tried again
            torch.cuda.empty_cache()  # outside the handler: the error's traceback holds the tensors

    def _slots_that_fit(self, slots: int, beam: int, source_capacity: int, positions: int) -> int:
        device = self.model.device
        if device.type != "cuda":
            return slots
        heads, layers = self.model.config.heads, len(list(self.model.decoder_layers()))
        bytes_per_token = layers * heads.kv_heads * (heads.d_k + heads.d_v) * 2
        logits = 2 * beam * self.model.vocab_size
        bytes_per_slot = (beam * positions + source_capacity) * bytes_per_token + logits
        memory = _MEMORY_SHARE * torch.cuda.mem_get_info(device)[0]
        while slots > 1 and slots * bytes_per_slot > memory:
            slots //= 2
        return slots


class GpuSession:
    """Keeps the slots of a slot batch full."""

    def __init__(self, engine: GpuEngine, config: SearchConfig) -> None:
        self._engine, self._config = engine, config
        self._waiting: deque[tuple[int, Job, int]] = deque()
        """Key, job, and maximum number of output tokens."""
        self._steps_left = 0
        """Upper bound on the steps until all jobs in slots are finished."""
        self._slots: SlotBatch | None = None
        self._running: dict[int, int] = {}
        """The key of the job in each slot."""
        self._job_id_S = np.zeros(0, dtype=np.int32)
        """Its job id; -1 if the slot is empty."""
        self._free: list[int] = []
        self._copying: list[tuple[list[int], list[int], PendingCopy]] = []
        """Keys of jobs, their slots, and the hypotheses of all slots."""

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """See `Session`."""
        model = self._engine.model
        longest = model.longest
        if longest is not None and isinstance(model, DecoderOnly):
            longest -= 1  # BOS has a position as well
        begin = begin_of(model)
        new = [(key, job, output_limit(job, self._config, longest) + begin) for key, job in jobs]
        if longest is not None:  # raises an error for texts beyond the learned positions
            model.reserve(max((max(len(job.tokens), limit) + 1 for _, job, limit in new), default=1))
        self._waiting.extend(new)

    def drop(self, keys: Sequence[int]) -> None:
        """See `Session`."""
        dropped = set(keys)
        self._waiting = deque(item for item in self._waiting if item[0] not in dropped)
        slots = [slot for slot, key in self._running.items() if key in dropped]
        if self._slots and slots:
            with torch.inference_mode(), self._engine.device_context():
                self._slots.beam.leave(slots)
            self._leave(slots)

    @property
    def waiting(self) -> int:
        """See `Session`."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """See `Session`."""
        return bool(self._waiting or self._running or self._copying)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """See `Session`."""
        with torch.inference_mode(), self._engine.device_context():
            return self._step()

    def _step(self) -> list[tuple[int, list[Hypothesis]]]:
        done = self._done()
        slots = self._slots
        enough = slots is not None and len(self._free) + len(done) >= max(slots.beam.slots // _REFILL, 1)
        if slots and done and (enough or len(done) == len(self._running)):
            self._copying.append((self._leave(done), done, slots.read()))
        if self._waiting and (enough or not self._running):
            self._fill()
        if self._slots and self._running:
            if self._steps_left:
                self._slots.step()
                self._steps_left -= 1
            else:
                self._slots.wait()
        return self._copied()

    def _done(self) -> list[int]:
        if not (self._slots and self._running):
            return []
        done: list[int] = np.flatnonzero(self._slots.done() == self._job_id_S).tolist()
        return done

    def _leave(self, slots: list[int]) -> list[int]:
        """Free these slots; returns the keys of their jobs."""
        self._job_id_S[slots] = -1
        self._free += slots
        return [self._running.pop(slot) for slot in slots]

    def _fill(self) -> None:
        """Move waiting jobs into free slots; if none is running, into a slot batch of the right size."""
        if not self._running:
            source_capacity = max(len(job.tokens) for _, job, _ in self._waiting) + 1
            positions = max(limit for _, _, limit in self._waiting) + 1
            self._slots = None  # frees its memory before a larger one is allocated
            self._slots = self._engine.slot_batch(len(self._waiting), self._config, source_capacity, positions)
            self._slots.set_search(self._config)
            self._free = list(range(self._slots.beam.slots))
            self._job_id_S = np.full(self._slots.beam.slots, -1, dtype=np.int32)
        assert self._slots
        begin, tokens, taken = self._slots.beam.begin, _FIRST_TOKENS, []
        while group := self._take(self._slots, tokens):
            self._slots.read_texts([slot for slot, *_ in group], [job for *_, job, _ in group])
            taken += group
            tokens = min(2 * tokens, _MOST_TOKENS)
        assert self._running, "the first job fits no slot"
        if taken:
            self._slots.enter([
                Entry(slot, len(job.tokens) - begin + 1, job_id, limit, job.reserved.start, len(job.reserved),
                      missing_bits(job), [*job.tokens[:begin], *job.prefix] if begin else job.prefix)
                for slot, job_id, job, limit in taken
            ])  # fmt: skip
            self._steps_left = max(self._steps_left, *(limit + 1 for *_, limit in taken))

    def _take(self, slots: SlotBatch, most_tokens: int) -> list[tuple[int, int, Job, int]]:
        """The next jobs for one call of the encoder, at least one, with their slots, job ids and limits."""
        taken: list[tuple[int, int, Job, int]] = []
        free, running, job_ids = self._free, self._running, self._engine.job_ids
        for key, job, limit in self._waiting:
            length = len(job.tokens) + 1
            most_tokens -= length
            if not (free and slots.holds(length, limit)) or (taken and most_tokens < 0):
                break  # it waits for a slot, for a larger slot batch, or for the next call
            slot = free.pop()
            running[slot] = key
            taken.append((slot, next(job_ids), job, limit))
        for slot, job_id, _, _ in taken:
            self._waiting.popleft()
            self._job_id_S[slot] = job_id
        return taken

    def _copied(self) -> list[tuple[int, list[Hypothesis]]]:
        """The hypotheses that have been copied to the CPU; waits for the copies if nothing else is left to do."""
        results: list[tuple[int, list[Hypothesis]]] = []
        while self._copying and (self._copying[0][2].ready() or not self._running):
            keys, slots, copied = self._copying.pop(0)
            model, config = self._engine.model, self._config
            best = hypotheses(copied.get(), slots, config.beam, config.nbest, begin_of(model))
            results += zip(keys, best, strict=True)
        return results
