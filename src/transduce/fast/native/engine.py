"""The native engine: jobs, batches and the calls into decoder.c."""

import ctypes
import math
from array import array
from collections import deque
from collections.abc import Sequence
from ctypes import POINTER, byref, c_void_p, pointer, sizeof
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

from transduce.fast.limits import ANY, ANY_BUT_END, MAX_BEAM, attention_limits, missing_bits, search_limits
from transduce.fast.native import structs
from transduce.fast.native.shortlist import Shortlist, Shortlists, model_shortlist
from transduce.fast.native.structs import (
    ENCODER_TOKENS,
    INTEGER_BYTES,
    LOGIT_PANELS,
    PADDING,
    PANEL,
    TILE_ROWS,
    Batch,
    Candidate,
    Model,
    Row,
)
from transduce.fast.native.weights import SpareMemory, Weights, weight_shapes
from transduce.models.any_model import AnyModel
from transduce.models.config import EncoderDecoderConfig
from transduce.models.forced_decoding import Attention, Pairs, TokenStatistics
from transduce.models.weights_file import Block, zeros
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Job, output_limit
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import EOS

MOST_ROWS = 128
"""Maximum number of hypotheses in a batch."""


class ActiveJob:
    """A job that is being decoded: its structure and the memory that it points to."""

    def __init__(
        self,
        key: int,
        job: Job,
        limit: int,
        config: SearchConfig,
        model: Model,
        library: ctypes.CDLL,
        memory: SpareMemory,
        shortlists: Shortlists | None,
        reads: bool,
        half: bool,
        begin: Sequence[int] = (),
    ) -> None:
        """`begin` are the first tokens of the source, which the decoder reads instead of the encoder.

        With `half`, the KV caches have 16 bits a number.
        """
        assert config.beam <= (1 if reads else MAX_BEAM)
        self.key, self._nbest, beam = key, config.nbest, config.beam
        self._begin = len(begin)
        self.common = -1
        """The source token whose list has the common tokens; -1 without a shortlist."""
        limit += self._begin
        positions, source_length = limit + 1, len(job.tokens) + 1 - self._begin
        layers, heads, d_k, d_v = model.decoder_layers, model.heads, model.d_k, model.d_v
        self_width, state_width = (0, model.width * layers) if model.ssru else (layers * heads * (d_k + d_v), 0)
        least, prefix = min(config.min_length + self._begin, positions), [*begin, *job.prefix]
        forced = array("i", [ANY_BUT_END] * least + [ANY] * (positions - least))
        forced[: len(prefix)], forced[limit] = array("i", prefix), EOS
        numbers = {
            "self_kv": beam * positions * self_width,
            "cross_kv": layers * library.cross_size(heads, d_k, d_v, source_length, beam),
        }
        self.caches = {name: memory.take(-(-count // 2) if half else count) for name, count in numbers.items()}
        self.arrays: dict[str, array[Any]] = {
            "states": zeros("f", 2 * beam * state_width),
            "ancestor": zeros("B", beam * positions),
            "tokens": zeros("i", beam * positions),
            "missing": array("I", [missing_bits(job)] * beam),
            "forced": forced,
            "log_prob": array(
                "f", [0.0, *[-math.inf] * (beam - 1)]
            ),  # search starts with one hypothesis, which is empty
            "finished_tokens": zeros("i", beam * positions),
            "finished_length": zeros("i", beam),
            "finished_log_prob": zeros("f", beam),
            "finished_score": array("f", [-math.inf] * beam),
        }
        if reads:
            # A search may end early, as with weights that are no numbers.
            self.arrays |= {
                "head_attention": zeros("f", model.heads * source_length),
                "attention": array("f", [1 / source_length]) * (positions * source_length),
                "token_log_prob": array("f", [-math.inf]) * positions,
                "entropy": zeros("f", positions),
            }
        addresses = {name: numbers.buffer_info()[0] for name, numbers in self.arrays.items()}
        addresses |= {name: block.address for name, block in self.caches.items()}
        self.struct = structs.Job(
            beam=beam, positions=positions, source_length=source_length, limit=limit, begin=self._begin,
            nbest=config.nbest,
            alpha=config.length_penalty, first_symbol=job.reserved.start, symbols=len(job.reserved), half=half,
            **addresses,
        )  # fmt: skip
        if config.shortlist:
            assert shortlists
            self.common, common, others = shortlists.of(job)
            self.struct.common, self.struct.own = pointer(common.struct), others.struct
            self._shortlist = common, others  # they own the memory

    def give_back(self, memory: SpareMemory) -> None:
        """Release the KV caches of a job that takes no more steps."""
        while self.caches:
            memory.give_back(self.caches.popitem()[1])

    def hypotheses(self) -> list[Hypothesis]:
        tokens, length, log_prob, score = (
            self.arrays[f"finished_{name}"] for name in ("tokens", "length", "log_prob", "score")
        )
        order = sorted(range(self.struct.finished_count), key=lambda i: -score[i])[: self._nbest]
        starts = [i * self.struct.positions for i in order]
        return [
            Hypothesis(tokens[start + self._begin : start + length[i]].tolist(), log_prob[i], score[i])
            for i, start in zip(order, starts, strict=True)
        ]

    def attention_weights(self) -> Attention:
        """The cross-attention (T, S) of the layer that aligns: the mean over its heads."""
        weights, length, not_read = self.arrays["attention"], self.struct.source_length, [0.0] * self._begin
        starts = range(self._begin * length, len(weights), length)
        return [[*not_read, *weights[start : start + length]] for start in starts]

    def token_statistics(self) -> TokenStatistics:
        log_probs, entropies = (self.arrays[name][self._begin :].tolist() for name in ("token_log_prob", "entropy"))
        return TokenStatistics(log_probs, entropies, [max(weight_S) for weight_S in self.attention_weights()])


class NativeEngine:
    """The model with 8-bit integers, on several threads."""

    name = "native"
    several_sessions = True
    mixed_options = True
    aligns = True

    def __init__(self, model: AnyModel, library: ctypes.CDLL, threads: int, batch_tokens: int = 8192) -> None:
        assert isinstance(model.config, EncoderDecoderConfig)
        self.sizes = model.config
        self.longest, self.library, self.threads = self.sizes.longest, library, threads
        self.batch_tokens = batch_tokens
        """Maximum number of source tokens times the beam that are in a batch."""
        self._model = model
        self.weights = Weights(self.sizes, model.arrays(weight_shapes(self.sizes, model.vocab_size)), library)
        self.memory = SpareMemory()

    @cached_property
    def shortlist(self) -> Shortlist | None:
        """The model's lexical shortlist, read when it is first used."""
        return model_shortlist(self._model)

    @cached_property
    def shortlists(self) -> Shortlists | None:
        return Shortlists(self.shortlist, self.weights.model, self.library) if self.shortlist else None

    @property
    def description(self) -> str:
        return f"native (8-bit, {self.library.instructions().decode()}, threads: {self.threads})"

    @staticmethod
    def supports(model: AnyModel, options: SearchConfig, *, constrained: bool = False) -> str | None:
        if model.config.architecture not in ("encoder_decoder", "ensemble"):
            return f"no models of the architecture {model.config.architecture}"
        has_shortlist = options.shortlist and model_shortlist(model) is not None
        if reason := search_limits(model.config, options, constrained=constrained, has_shortlist=has_shortlist):
            return reason
        assert isinstance(model.config, EncoderDecoderConfig)
        return _model_limits(model.config)

    def start_session(self, config: SearchConfig) -> "NativeSession":
        return NativeSession(self, config)

    def attention_weights(self, pairs: Pairs) -> list[Attention]:
        return [job.attention_weights() for job in self._read(pairs)]

    def token_log_probs(self, pairs: Pairs) -> list[list[float]]:
        return [statistics.log_prob_T for statistics in self.token_statistics(pairs)]

    def token_statistics(self, pairs: Pairs) -> list[TokenStatistics]:
        return [job.token_statistics() for job in self._read(pairs)]

    def _read(self, pairs: Pairs) -> list[ActiveJob]:
        """Forced decoding: the searches whose prefixes are the outputs."""
        session = NativeSession(self, SearchConfig(beam=1), reads=True)
        session.add([(key, Job(source, output)) for key, (source, output) in enumerate(pairs)])
        finished: dict[int, ActiveJob] = {}
        while session.busy:
            finished |= {job.key: job for job in session.advance()}
        return [finished[key] for key in range(len(pairs))]


def _model_limits(config: EncoderDecoderConfig) -> str | None:
    """What the engine does not compute: it has the settings of the paper, Marian, M2M-100 and BART."""
    known = {"norm_type": ("layer",), "activation": ("relu", "gelu", "gelu_tanh", "swish"), "bias": (True,)}
    for name, values in known.items():
        if getattr(config, name) not in values:
            return f"no models with model.{name} = {str(getattr(config, name)).lower()}"
    return "no rotary positions" if config.positions == "rotary" else attention_limits(config)


class NativeSession:
    """A batch of up to MOST_ROWS hypotheses; jobs that finish are replaced by waiting ones (continuous batching).

    `config` has the options of the jobs that have none of their own. If it `reads`, it is forced decoding: prefixes are
    complete outputs, and jobs keep what the model predicts at their tokens.
    """

    def __init__(self, engine: NativeEngine, config: SearchConfig, *, reads: bool = False) -> None:
        self._engine, self._config, self._reads = engine, config, reads
        self._parts = 2 if reads or engine.sizes.decoder_cell == "ssru" else 1
        """In two parts, activations are as precise as in float32: SSRUs lose more by rounding."""
        self._waiting: deque[tuple[int, Job]] = deque()
        self._active: list[ActiveJob] = []
        self._pointers: Any = None
        """To the structures of the active jobs."""
        self._reserved = (0, 0)
        """Rows of the batch's buffers, and the longest text that they have room for."""

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        self._waiting.extend(jobs)

    def drop(self, keys: Sequence[int]) -> None:
        dropped = set(keys)
        self._waiting = deque(item for item in self._waiting if item[0] not in dropped)
        self._remove([job for job in self._active if job.key in dropped])

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._active)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        return [(job.key, job.hypotheses()) for job in self.advance()]

    def advance(self) -> list[ActiveJob]:
        """Start waiting jobs or, if there is no room for any, take a step; returns the jobs that finished.

        A step takes little longer with more jobs, as it reads the weights once for all.
        """
        if jobs := self._next_jobs():
            self._start(jobs)
            return []
        assert self._active
        engine = self._engine
        engine.library.step(
            byref(engine.weights.model), self._pointers, len(self._active), byref(self._batch), engine.threads
        )
        done = [job for job in self._active if job.struct.done]
        if done:
            self._remove(done)
        return done

    def _options(self, job: Job) -> SearchConfig:
        return job.options or self._config

    def _next_jobs(self) -> list[tuple[int, Job]]:
        """Waiting jobs that fit into the batch, once there is room for an eighth of it.

        They have at most ENCODER_TOKENS tokens, or are one: encoding many at once has no benefit, but other sessions
        would wait for it.
        """
        rows = sum(job.struct.beam for job in self._active)
        if rows > MOST_ROWS - MOST_ROWS // 8:
            return []
        jobs: list[tuple[int, Job]] = []
        tokens = sum(job.struct.beam * job.struct.source_length for job in self._active)
        encoded = 0
        while self._waiting:
            job = self._waiting[0][1]
            beam, length = self._options(job).beam, len(job.tokens) + 1
            rows, tokens, encoded = rows + beam, tokens + beam * length, encoded + length
            full = rows > MOST_ROWS or tokens > self._engine.batch_tokens
            if (full and (jobs or self._active)) or (jobs and encoded > ENCODER_TOKENS):
                break
            jobs.append(self._waiting.popleft())
        return jobs

    def _start(self, jobs: list[tuple[int, Job]]) -> None:
        """Encode the sources of these jobs and add them to the batch."""
        engine, model = self._engine, self._engine.weights.model
        options = [self._options(job) for _, job in jobs]
        limits = [
            len(job.prefix) if self._reads else output_limit(job, config, engine.longest)
            for (_, job), config in zip(jobs, options, strict=True)
        ]
        tags = int(engine.sizes.decoder_tag)
        sources = [[*job.tokens[tags:], EOS] for _, job in jobs]
        lengths = [len(source) for source in sources]
        longest = max(*lengths, *(limit + 1 + tags for limit in limits))
        engine.weights.require_positions(longest)
        new = [
            ActiveJob(
                key,
                job,
                limit,
                config,
                model,
                engine.library,
                engine.memory,
                engine.shortlists if config.shortlist else None,
                self._reads,
                self._parts == 1,
                job.tokens[:tags],
            )
            for (key, job), limit, config in zip(jobs, limits, options, strict=True)
        ]
        rows = sum(job.struct.beam for job in [*self._active, *new])
        self._reserve(max(ENCODER_TOKENS, *lengths, rows), longest)
        tokens = array("i", [*chain.from_iterable(sources)])
        assert 0 <= min(tokens) <= max(tokens) < engine.weights.source_vocabulary
        offsets = array("i", [0, *accumulate(lengths)])
        addresses = (c_void_p(numbers.buffer_info()[0]) for numbers in (tokens, offsets))
        engine.library.encode(byref(model), _pointers(new), len(new), *addresses, byref(self._batch), engine.threads)
        self._set_active(self._active + new)

    def _remove(self, jobs: list[ActiveJob]) -> None:
        self._set_active([job for job in self._active if job not in jobs])
        for job in jobs:
            job.give_back(self._engine.memory)

    def _set_active(self, jobs: list[ActiveJob]) -> None:
        # Those with the same common tokens, or without a shortlist, are adjacent: their rows are projected together.
        self._active = jobs = sorted(jobs, key=lambda job: job.common)
        self._pointers = _pointers(jobs)

    def _reserve(self, rows: int, longest: int) -> None:
        """Allocate the buffers of a batch of this many rows with texts up to this length, unless they are there."""
        if rows <= self._reserved[0] and longest <= self._reserved[1]:
            return
        sizes, (d_k, d_v), threads = self._engine.sizes, self._engine.sizes.head_widths, self._engine.threads
        self._reserved = rows, longest = max(rows, self._reserved[0]), max(longest, self._reserved[1])
        scratch = self._engine.library.scratch_size(sizes.d_model, sizes.num_heads, d_k, d_v, longest)
        width = max(sizes.d_model, sizes.num_heads * d_v)
        wide = max(sizes.d_ff, sizes.num_heads * (2 * d_k + d_v), 2 * sizes.d_model)
        bytes_of = {
            "row": rows * sizeof(Row), "x": rows * sizes.d_model * 4, "y": rows * width * 4, "wide": rows * wide * 4,
            # The rows of a tile may begin at any row.
            "quantised": (rows * self._parts + TILE_ROWS) * (max(wide, width) + PADDING) * INTEGER_BYTES,
            "scale": rows * self._parts * 4,
            "scratch": threads * scratch * 4,
            "logits": threads * rows * LOGIT_PANELS * PANEL * 4,
            "max_logit": threads * rows * 4, "exp_sum": threads * rows * 4, "logit_sum": threads * rows * 4,
            "candidates": threads * rows * 2 * MAX_BEAM * sizeof(Candidate),
        }  # fmt: skip
        self._buffers = {name: Block(size) for name, size in bytes_of.items()}
        addresses = {name: buffer.address for name, buffer in self._buffers.items()}
        self._batch = Batch(parts=self._parts, scratch_size=scratch, **addresses)


def _pointers(jobs: list[ActiveJob]) -> Any:
    return (POINTER(structs.Job) * len(jobs))(*(pointer(job.struct) for job in jobs))
