"""What a request wants done, in the scheduler's terms."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from transduce.engines.engine import Job
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.translator import Translation, Translator

Found = list[tuple[int, list[Hypothesis]]]
Done = list[tuple[int, list[Translation]]]
"""Numbers of jobs within their order, and their outputs: as token ids, as text."""


@dataclass(eq=False)
class Order:
    """The sentences of one request."""

    translator: Translator
    config: SearchConfig
    jobs: list[Job]
    align: bool
    deliver: Callable[[Done | Exception], None]
    """Called on the scheduler's thread with what has just been done, or with what went wrong."""
    first_key: int = 0
    """Of the order's first job in the session."""
    taken: int = 0
    """Jobs that have left the queue."""

    @property
    def group(self) -> Hashable:
        """Orders of one group share a session. One that samples has its own: its draws must not depend on others."""
        return (self.translator, self.config, self if self.config.sample else None)

    def cost(self, job: Job) -> int:
        """What a job takes of the token budget."""
        return (len(job.tokens) + 1) * (self.config.nbest if self.config.sample else self.config.beam)

    def translated(self, found: Found) -> Done:
        """Outputs as text."""
        numbers, hypotheses = [number for number, _ in found], [best for _, best in found]
        jobs = [self.jobs[number] for number in numbers]
        outputs = self.translator.translations(jobs, hypotheses, self.align)
        return list(zip(numbers, outputs, strict=True))
