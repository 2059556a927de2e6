"""What an engine is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig

_WIDEST_BEAM = 16


@dataclass(frozen=True)
class Job:
    """A sentence to be translated, as token ids."""

    tokens: list[int]
    """Without markers."""
    prefix: list[int]
    """What the output must begin with."""


class Session(Protocol):
    """Jobs under way. They may join at any time, and each leaves as soon as it is done."""

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """Take jobs in, each under a key of the caller's; jobs of similar length side by side work best."""

    def drop(self, keys: Sequence[int]) -> None:
        """Spend nothing more on these; unknown keys are passed over."""

    @property
    def waiting(self) -> int:
        """Jobs not yet begun."""

    @property
    def busy(self) -> bool:
        """Whether any job is not done."""

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Work a little; the jobs that are done now, each with its outputs, best first."""


class Engine(Protocol):
    """A model made ready to search with."""

    name: str

    @property
    def description(self) -> str:
        """Its name and what it runs on, for people."""

    @property
    def batch_tokens(self) -> int | None:
        """Source tokens, times the rows of their sentences, that are worked on at once; None is as many as fit."""

    def takes(self, config: SearchConfig) -> bool:
        """Whether it can search in this way; `plain` always can."""

    def begin(self, config: SearchConfig) -> Session:
        """A session of jobs that are all searched in this way; one at a time."""


def is_narrow_beam_search(config: SearchConfig) -> bool:
    """Greedy search, or beam search with a beam that fits a kernel: what the fast engines take."""
    return not config.sample and not config.no_repeat and config.beam <= _WIDEST_BEAM


def search_all(engine: Engine, jobs: Sequence[Job], config: SearchConfig) -> list[list[Hypothesis]]:
    """The outputs of every job, in the order of the jobs."""
    session = engine.begin(config)
    session.add(sorted(enumerate(jobs), key=lambda item: -len(item[1].tokens)))
    found: list[list[Hypothesis]] = [[] for _ in jobs]
    while session.busy:
        for key, hypotheses in session.step():
            found[key] = hypotheses
    return found


def output_limit(job: Job, config: SearchConfig, longest: int | None) -> int:
    """Tokens a job's output may have."""
    limits = [len(job.tokens) + config.max_extra, config.max_length, longest]
    return max(min(limit for limit in limits if limit is not None), len(job.prefix))
