"""The reference engine: `search` with the model itself, one batch at a time, in the precision of its weights."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch

from transduce.data.batch import Stream
from transduce.engines.engine import Job, output_limit
from transduce.models.model import Model
from transduce.nn.segments import pack_tokens
from transduce.search.constraint import MakeConstraint
from transduce.search.decoder import Decoder, Hypothesis
from transduce.search.options import SearchConfig
from transduce.search.search import search
from transduce.text.tokenizer import EOS


class PlainEngine:
    """Runs every generating model on every device that torch supports."""

    name = "plain"

    def __init__(self, model: Model, batch_tokens: int = 4096) -> None:
        self.model = model
        self.batch_tokens = batch_tokens
        """See `Engine`; halved when a batch does not fit in memory."""

    @property
    def description(self) -> str:
        """See `Engine`."""
        dtype = str(self.model.output_weight_VD.dtype).removeprefix("torch.")
        return f"plain ({self.model.device.type}, {dtype})"

    @staticmethod
    def supports(model: Model, options: SearchConfig, *, constrained: bool = False) -> str | None:
        """See `Engine`: every option, for models that generate."""
        return None if isinstance(model, Decoder) else f"{model.config.architecture} models do not generate text"

    def start_session(self, config: SearchConfig, constrain: MakeConstraint | None = None) -> "PlainSession":
        """See `Engine`; `constrain` makes the constraint of each batch, whose limits then replace those of `config`."""
        return PlainSession(self, config, constrain)


class PlainSession:
    """Each step searches one batch from the first token to the last."""

    def __init__(self, engine: PlainEngine, config: SearchConfig, constrain: MakeConstraint | None = None) -> None:
        self._engine, self._config, self._constrain = engine, config, constrain
        self._waiting: deque[tuple[int, Job]] = deque()

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """See `Session`."""
        self._waiting.extend(jobs)

    def drop(self, keys: Sequence[int]) -> None:
        """See `Session`."""
        dropped = set(keys)
        self._waiting = deque(item for item in self._waiting if item[0] not in dropped)

    @property
    def waiting(self) -> int:
        """See `Session`."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """See `Session`."""
        return bool(self._waiting)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """See `Session`; a batch that does not fit in memory is split."""
        return self._translate(self._next_batch())

    def _next_batch(self) -> list[tuple[int, Job]]:
        rows = self._config.nbest if self._config.sample else self._config.beam
        batch: list[tuple[int, Job]] = []
        tokens_left = self._engine.batch_tokens
        while self._waiting and (not batch or (len(self._waiting[0][1].tokens) + 1) * rows <= tokens_left):
            batch.append(self._waiting.popleft())
            tokens_left -= (len(batch[-1][1].tokens) + 1) * rows
        return batch

    def _translate(self, batch: list[tuple[int, Job]]) -> list[tuple[int, list[Hypothesis]]]:
        try:
            return self._search(batch)
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                raise
        # The tensors of the failed attempt are freed only here: inside the handler, the traceback holds them.
        middle = len(batch) // 2
        self._engine.batch_tokens //= 2
        return self._translate(batch[:middle]) + self._translate(batch[middle:])

    def _search(self, batch: list[tuple[int, Job]]) -> list[tuple[int, list[Hypothesis]]]:
        model, jobs = self._engine.model, [job for _, job in batch]
        assert isinstance(model, Decoder)
        # The seed of sampling depends on the first job's key, so that batches draw different random numbers.
        config = replace(self._config, seed=(self._config.seed + 1_000_003 * batch[0][0]) % 2**31)
        constraint = self._constrain([job.tokens for job in jobs], model.device) if self._constrain else None
        results = search(
            model,
            Stream(*pack_tokens([[*job.tokens, EOS] for job in jobs], model.device)),
            constraint.limits if constraint else [output_limit(job, config, model.longest) for job in jobs],
            config,
            [job.prefix for job in jobs] if any(job.prefix for job in jobs) else None,
            model.device,
            constraint,
        )
        return [(key, hypotheses) for (key, _), hypotheses in zip(batch, results, strict=True)]
