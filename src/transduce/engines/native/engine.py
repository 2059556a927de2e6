"""The engine that runs decoder.c."""

import ctypes
from collections import deque
from collections.abc import Sequence
from ctypes import POINTER, byref, c_float, c_void_p, pointer, sizeof
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.engines.engine import Job, fast_engine_limits, output_limit
from transduce.engines.native import structs
from transduce.engines.native.structs import BLOCK, ENCODED_AT_ONCE, MAX_BEAM, PANEL, Candidate, Model, Row, Rows
from transduce.engines.native.weights import Weights
from transduce.models import model as models
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import EOS

MOST_ROWS = 128


class _Running:
    """A job under way: its structure, and the arrays it points to."""

    def __init__(self, key: int, job: Job, limit: int, beam: int, model: Model) -> None:
        self.key = key
        places, source = limit + 1, len(job.tokens) + 1
        line = model.heads * (model.d_k + model.d_v) * model.decoder_layers
        forced = np.full(places, -1, np.int32)
        forced[: len(job.prefix)], forced[limit] = job.prefix, EOS
        alive = np.full(beam, -np.inf, np.float32)
        alive[0] = 0.0  # one hypothesis to begin with: nothing said
        self.arrays: dict[str, npt.NDArray[Any]] = {
            "self_kv": np.empty(beam * places * line, np.float32),
            "cross_kv": np.empty(source * line, np.float32),
            "ancestor": np.zeros((beam, places), np.uint8),
            "said": np.zeros((beam, places), np.int32),
            "forced": forced,
            "ended": np.zeros((beam, places), np.int32),
            "ended_length": np.zeros(beam, np.int32),
            "alive": alive,
            "ended_log_prob": np.zeros(beam, np.float32),
            "ended_score": np.full(beam, -np.inf, np.float32),
        }
        memory = {name: array.ctypes.data for name, array in self.arrays.items()}
        self.struct = structs.Job(beam=beam, places=places, source=source, limit=limit, **memory)

    def hypotheses(self, nbest: int) -> list[Hypothesis]:
        """What has ended, best first."""
        ended, length, log_prob, score = (
            self.arrays[name] for name in ("ended", "ended_length", "ended_log_prob", "ended_score")
        )
        order = np.argsort(-score, kind="stable")[: min(nbest, self.struct.ended_count)]
        return [Hypothesis(ended[i, : length[i]].tolist(), float(log_prob[i]), float(score[i])) for i in order]


class NativeEngine:
    """The model in 8-bit whole numbers, on several threads."""

    name = "native"

    def __init__(self, model: EncoderDecoder, library: ctypes.CDLL, threads: int, batch_tokens: int = 8192) -> None:
        self.longest, self.library, self.threads = model.longest, library, threads
        self.batch_tokens = batch_tokens
        """Source tokens, times the beam, that are worked on at once."""
        self.weights = Weights(model, library)
        self.sizes = model.config

    @property
    def description(self) -> str:
        """As in `Engine`."""
        return f"native (8-bit, {self.library.instructions().decode()}, threads: {self.threads})"

    @staticmethod
    def supports(model: models.Model, options: SearchConfig) -> str | None:
        """See `Engine`."""
        return fast_engine_limits(model, options)

    def start_session(self, config: SearchConfig) -> "NativeSession":
        """As in `Engine`."""
        return NativeSession(self, config)


class NativeSession:
    """Keeps up to MOST_ROWS rows busy; a job that is done makes room for the next."""

    def __init__(self, engine: NativeEngine, config: SearchConfig) -> None:
        assert config.beam <= MAX_BEAM
        self._engine, self._config = engine, config
        self._waiting: deque[tuple[int, Job]] = deque()
        self._running: list[_Running] = []
        self._room = (0, 0)
        """Rows of the buffers, and places of the longest text that they hold."""
        self._pointers: Any = None

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """As in `Session`."""
        self._waiting.extend(jobs)

    def drop(self, keys: Sequence[int]) -> None:
        """As in `Session`."""
        gone = set(keys)
        self._waiting = deque(item for item in self._waiting if item[0] not in gone)
        self._keep([running for running in self._running if running.key not in gone])

    @property
    def waiting(self) -> int:
        """As in `Session`."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """As in `Session`."""
        return bool(self._waiting or self._running)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """As in `Session`."""
        if jobs := self._that_fit():
            self._enter(jobs)
        engine, config = self._engine, self._config
        engine.library.step(
            byref(engine.weights.model), self._pointers, len(self._running), byref(self._rows),
            c_float(config.length_penalty), config.nbest, engine.threads,
        )  # fmt: skip
        done = [running for running in self._running if running.struct.done]
        if done:
            self._keep([running for running in self._running if not running.struct.done])
        return [(running.key, running.hypotheses(config.nbest)) for running in done]

    def _that_fit(self) -> list[tuple[int, Job]]:
        """Waiting jobs for which there is room, once there is room for several or nothing else to do."""
        beam = self._config.beam
        most = max(MOST_ROWS // beam, 1)
        if len(self._running) > most - max(most // 8, 1):
            return []
        jobs: list[tuple[int, Job]] = []
        room = self._engine.batch_tokens // beam - sum(running.struct.source for running in self._running)
        while self._waiting and len(self._running) + len(jobs) < most:
            room -= len(self._waiting[0][1].tokens) + 1
            if room < 0 and (jobs or self._running):
                break
            jobs.append(self._waiting.popleft())
        return jobs

    def _enter(self, jobs: list[tuple[int, Job]]) -> None:
        engine, config = self._engine, self._config
        model = engine.weights.model
        limits = [output_limit(job, config, engine.longest) for _, job in jobs]
        sources = [[*job.tokens, EOS] for _, job in jobs]
        lengths = [len(source) for source in sources]
        longest = max(*lengths, *(limit + 1 for limit in limits))
        engine.weights.reach(longest)
        new = [_Running(key, job, limit, config.beam, model) for (key, job), limit in zip(jobs, limits, strict=True)]
        self._make_room(max(ENCODED_AT_ONCE, *lengths, (len(self._running) + len(new)) * config.beam), longest)
        tokens = np.fromiter(chain.from_iterable(sources), np.int32, sum(lengths))
        assert 0 <= tokens.min() <= tokens.max() < model.vocabulary
        offsets = np.array([0, *accumulate(lengths)], np.int32)
        engine.library.encode(
            byref(model), _pointers(new), len(new), c_void_p(tokens.ctypes.data), c_void_p(offsets.ctypes.data),
            byref(self._rows), engine.threads,
        )  # fmt: skip
        self._keep(self._running + new)

    def _keep(self, running: list[_Running]) -> None:
        self._running = running
        self._pointers = _pointers(running)

    def _make_room(self, rows: int, longest: int) -> None:
        """Buffers for this many rows, and texts of this length."""
        if rows <= self._room[0] and longest <= self._room[1]:
            return
        self._room = rows, longest = max(rows, self._room[0]), max(longest, self._room[1])
        sizes, (d_k, d_v), threads = self._engine.sizes, self._engine.sizes.head_widths, self._engine.threads
        wide = max(sizes.d_ff, sizes.num_heads * (2 * d_k + d_v))
        most = 2 * self._config.beam
        width = max(sizes.d_model, sizes.num_heads * d_v)
        bytes_of = {
            "which": rows * sizeof(Row), "x": rows * sizes.d_model * 4, "y": rows * width * 4, "wide": rows * wide * 4,
            "scale": rows * 4, "logits": threads * rows * BLOCK * PANEL * 4, "q": rows * (max(wide, width) + 16),
            "scores": threads * longest * 4,
            "top": threads * rows * 4, "total": threads * rows * 4, "best": threads * rows * most * sizeof(Candidate),
        }  # fmt: skip
        self._buffers = {name: np.empty(size, np.uint8) for name, size in bytes_of.items()}
        self._rows = Rows(longest=longest, **{name: buffer.ctypes.data for name, buffer in self._buffers.items()})


def _pointers(jobs: list[_Running]) -> Any:
    return (POINTER(structs.Job) * len(jobs))(*(pointer(running.struct) for running in jobs))
