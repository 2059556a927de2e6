"""The reference engine: the searches of `search/` with the model itself, in the precision of its weights."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch

from transduce.data.batch import Stream
from transduce.models.any_model import AnyModel
from transduce.models.model import Model
from transduce.nn.segments import pack_tokens
from transduce.search.constraint import MakeConstraint, SymbolRule
from transduce.search.decoder import Decoder, Hypothesis, SearchSteps
from transduce.search.engine import Job, cannot_generate, output_limit
from transduce.search.options import SearchConfig
from transduce.search.search import search_steps
from transduce.tokenizers.tokenizer import EOS


class PlainEngine:
    """Runs every generating model on every device that torch supports."""

    name = "plain"
    several_sessions = True
    mixed_options = False

    def __init__(self, model: Model, batch_tokens: int = 4096) -> None:
        self.model = model
        self.batch_tokens = batch_tokens
        """See `Engine`; halved when a batch does not fit in memory."""

    @property
    def description(self) -> str:
        dtype = str(self.model.output_weight_VD.dtype).removeprefix("torch.")
        return f"plain ({self.model.device.type}, {dtype})"

    @staticmethod
    def supports(model: AnyModel, options: SearchConfig, *, constrained: bool = False) -> str | None:
        return "no lexical shortlist for this model" if options.shortlist else cannot_generate(model)

    def start_session(self, config: SearchConfig, constrain: MakeConstraint | None = None) -> "PlainSession":
        """See `Engine`; `constrain` makes the constraint of each batch, whose limits then replace those of `config`."""
        return PlainSession(self, config, constrain)


class PlainSession:
    """Searches one batch after the other; each step adds a token to every hypothesis of the batch."""

    def __init__(self, engine: PlainEngine, config: SearchConfig, constrain: MakeConstraint | None = None) -> None:
        self._engine, self._config, self._constrain = engine, config, constrain
        self._waiting: deque[tuple[int, Job]] = deque()
        self._batch: list[tuple[int, Job]] = []
        """The jobs that are being searched."""
        self._steps: SearchSteps | None = None
        self._dropped: set[int] = set()
        """Keys of jobs of the batch whose results are not wanted."""

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        self._waiting.extend(jobs)

    def drop(self, keys: Sequence[int]) -> None:
        """See `Session`; a batch is abandoned when all its jobs are dropped."""
        self._dropped |= set(keys)
        self._waiting = deque(item for item in self._waiting if item[0] not in self._dropped)
        if all(key in self._dropped for key, _ in self._batch):
            self._end_batch()
        self._dropped &= {key for key, _ in self._batch}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._batch)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """See `Session`; of a batch that does not fit in memory, the first half is tried again."""
        if self._steps is None:
            self._batch = self._next_batch()
            self._steps = self._search([job for _, job in self._batch])
        try:
            next(self._steps)
            return []
        except StopIteration as end:
            keys = [key for key, _ in self._batch]
            results = zip(keys, end.value, strict=True)
            finished = [(key, hypotheses) for key, hypotheses in results if key not in self._dropped]
        except torch.OutOfMemoryError:
            if len(self._batch) == 1:
                raise
            finished = []
            self._waiting.extendleft(reversed([item for item in self._batch if item[0] not in self._dropped]))
            self._engine.batch_tokens //= 2
        self._end_batch()
        return finished

    def _end_batch(self) -> None:
        self._batch, self._steps = [], None
        self._dropped.clear()

    def _next_batch(self) -> list[tuple[int, Job]]:
        rows = self._config.rows
        batch: list[tuple[int, Job]] = []
        tokens_left = self._engine.batch_tokens
        while self._waiting and (not batch or (len(self._waiting[0][1].tokens) + 1) * rows <= tokens_left):
            batch.append(self._waiting.popleft())
            tokens_left -= (len(batch[-1][1].tokens) + 1) * rows
        return batch

    def _search(self, jobs: list[Job]) -> SearchSteps:
        model = self._engine.model
        assert isinstance(model, Decoder)
        # The seed of sampling depends on the first job's key, so that batches draw different random numbers.
        config = replace(self._config, seed=(self._config.seed + 1_000_003 * self._batch[0][0]) % 2**31)
        constraint = self._constrain([job.tokens for job in jobs], model.device) if self._constrain else None
        reserved = jobs[0].reserved
        assert all(job.reserved == reserved for job in jobs)
        return search_steps(
            model,
            Stream(*pack_tokens([[*job.tokens, EOS] for job in jobs], model.device)),
            constraint.limits if constraint else [output_limit(job, config, model.longest) for job in jobs],
            config,
            [job.prefix for job in jobs] if any(job.prefix for job in jobs) else None,
            model.device,
            constraint,
            SymbolRule(reserved, [job.once for job in jobs], model.device) if reserved else None,
        )
