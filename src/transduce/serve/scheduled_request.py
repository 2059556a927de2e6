"""A translation request as the scheduler sees it."""

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field

from transduce.search.decoder import Hypothesis
from transduce.search.engine import Job, output_limit
from transduce.search.options import SearchConfig
from transduce.translation.text import Segment
from transduce.translation.translation import Translation
from transduce.translation.translator import Confidence, Translator

JobHypotheses = list[tuple[int, list[Hypothesis]]]
"""The index of each finished job within its request, with its hypotheses."""
JobTranslations = list[tuple[int, list[Translation]]]
"""The same with decoded translations."""


@dataclass(eq=False)
class ScheduledRequest:
    """The jobs of one request, with the options of its search."""

    translator: Translator
    config: SearchConfig
    jobs: list[Segment]
    aligned: Collection[int]
    """Indices of the jobs whose outputs are aligned."""
    deliver: Callable[[JobTranslations | Exception], None]
    """Called on the scheduler's thread with the jobs that have just finished, or with an error."""
    first_key: int = 0
    """Key of the first job in the engine's session; the other jobs have the keys that follow."""
    started: int = 0
    """Number of jobs that have left the queue."""
    confidence: Confidence = False
    remaining: int = field(init=False)
    """Cost of the jobs that are still in the queue."""

    def __post_init__(self) -> None:
        self.remaining = sum(map(self.cost, self.jobs))

    @property
    def session_group(self) -> Hashable:
        """Requests of one group share a session; one that samples has its own, so that others do not affect it."""
        return (self.translator, self.config, self if self.config.sample else None)

    def cost(self, job: Job) -> int:
        """The tokens of the budget that a job needs."""
        tokens = max(
            len(job.tokens), len(job.prefix), min(self.config.min_length, output_limit(job, self.config, None))
        )
        return (tokens + 1) * self.config.rows

    def decode(self, finished: JobHypotheses) -> JobTranslations:
        """Convert token ids to text."""
        outputs: JobTranslations = []
        for align in (False, True):
            chosen = [(index, best) for index, best in finished if (index in self.aligned) == align]
            jobs, hypotheses = [self.jobs[index] for index, _ in chosen], [best for _, best in chosen]
            translations = self.translator.translations(jobs, hypotheses, self.config, align, self.confidence)
            outputs += zip((index for index, _ in chosen), translations, strict=True)
        return outputs
