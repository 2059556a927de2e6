"""The readable engine: `search` over the model itself, batch by batch, in the model's own precision."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch

from transduce.engines.engine import Job, output_limit
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.segments import pack_tokens
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.search.search import search
from transduce.text.tokenizer import EOS


class PlainEngine:
    """Runs anywhere torch does."""

    name = "plain"

    def __init__(self, model: EncoderDecoder, batch_tokens: int = 4096) -> None:
        self.model = model
        self.batch_tokens = batch_tokens
        """Source tokens, times the rows of a sentence, that are worked on at once."""

    @property
    def description(self) -> str:
        """As in `Engine`."""
        weight_VD = self.model.embedding.weight_VD
        return f"plain ({weight_VD.device.type}, {str(weight_VD.dtype).removeprefix('torch.')})"

    def takes(self, config: SearchConfig) -> bool:
        """As in `Engine`: anything."""
        return True

    def begin(self, config: SearchConfig) -> "PlainSession":
        """As in `Engine`."""
        return PlainSession(self, config)


class PlainSession:
    """Works on one batch a step, from its first word to its last."""

    def __init__(self, engine: PlainEngine, config: SearchConfig) -> None:
        self._engine, self._config = engine, config
        self._waiting: deque[tuple[int, Job]] = deque()

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """As in `Session`."""
        self._waiting.extend(jobs)

    def drop(self, keys: Sequence[int]) -> None:
        """As in `Session`."""
        dropped = set(keys)
        self._waiting = deque(item for item in self._waiting if item[0] not in dropped)

    @property
    def waiting(self) -> int:
        """As in `Session`."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """As in `Session`."""
        return bool(self._waiting)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """As in `Session`; where memory does not hold the batch, it is split."""
        return self._translate(self._next_batch())

    def _next_batch(self) -> list[tuple[int, Job]]:
        rows = self._config.nbest if self._config.sample else self._config.beam
        batch: list[tuple[int, Job]] = []
        room = self._engine.batch_tokens
        while self._waiting and (not batch or (len(self._waiting[0][1].tokens) + 1) * rows <= room):
            batch.append(self._waiting.popleft())
            room -= (len(batch[-1][1].tokens) + 1) * rows
        return batch

    def _translate(self, batch: list[tuple[int, Job]]) -> list[tuple[int, list[Hypothesis]]]:
        try:
            return self._search(batch)
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                raise
        # Only out here are the tensors of the attempt free: the error's traceback held them.
        middle = len(batch) // 2
        self._engine.batch_tokens //= 2
        return self._translate(batch[:middle]) + self._translate(batch[middle:])

    def _search(self, batch: list[tuple[int, Job]]) -> list[tuple[int, list[Hypothesis]]]:
        model, jobs = self._engine.model, [job for _, job in batch]
        device = model.embedding.weight_VD.device
        # What sampling draws depends on the first job's key, so that batches do not all draw alike.
        config = replace(self._config, seed=(self._config.seed + 1_000_003 * batch[0][0]) % 2**31)
        found = search(
            model,
            pack_tokens([[*job.tokens, EOS] for job in jobs], device),
            [output_limit(job, config, model.longest) for job in jobs],
            config,
            [job.prefix for job in jobs] if any(job.prefix for job in jobs) else None,
            device,
        )
        return [(key, hypotheses) for (key, _), hypotheses in zip(batch, found, strict=True)]
