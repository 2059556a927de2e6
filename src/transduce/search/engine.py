"""The `Engine` contract."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from transduce.models.any_model import AnyModel
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig

MOST_RESERVED = 31
"""The fast engines note in the bits of an integer which symbols an output lacks."""


@dataclass(slots=True)  # not frozen, which makes a thousand of them take 1.5 ms longer
class Job:
    """A sentence to translate, as token ids."""

    tokens: list[int]
    """Source tokens, without markers."""
    prefix: list[int]
    """Forced prefix: the tokens the output must begin with."""
    terms: tuple[int, ...] = field(default=(), kw_only=True)
    """Tokens that the output may need, such as those of a glossary's terms; they are added to a lexical shortlist."""
    reserved: range = field(default=range(0), kw_only=True)
    """Symbols, at most MOST_RESERVED, of which the output contains only those in `once`."""
    once: tuple[int, ...] = field(default=(), kw_only=True)
    """Reserved symbols that the output contains exactly once: it does not end without them, except at its limit."""
    options: SearchConfig | None = field(default=None, kw_only=True)
    """Options of this job, if they differ from those of its session; only if the engine has `mixed_options`."""


class Session(Protocol):
    """Jobs in progress (continuous batching): jobs may be added at any time, and each leaves when it is finished."""

    def add(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """Queue jobs, each with a key chosen by the caller; adjacent jobs should have similar lengths."""

    def drop(self, keys: Sequence[int]) -> None:
        """Cancel the jobs with these keys; unknown keys are ignored."""

    @property
    def waiting(self) -> int:
        """Number of jobs that have not started."""

    @property
    def busy(self) -> bool:
        """Whether any job is unfinished."""

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Do a small amount of work; returns the jobs that finished, each with its hypotheses, best first."""


class Engine(Protocol):
    """A model prepared for search."""

    name: str
    several_sessions: bool
    """Whether several sessions may be in progress at the same time, in one thread."""
    mixed_options: bool
    """Whether the jobs of a session may have options of their own."""

    @property
    def description(self) -> str:
        """Name, precision and device, for display."""

    @property
    def batch_tokens(self) -> int | None:
        """Source tokens times rows per sentence that are processed at once; None is as many as fit in memory."""

    @staticmethod
    def supports(model: AnyModel, options: SearchConfig, *, constrained: bool = False) -> str | None:
        """The reason why this engine cannot run this model with these options; None if it can.

        A `constrained` search holds its outputs to a grammar (search/constraint.py).
        """

    def start_session(self, config: SearchConfig) -> Session:
        """Start a session of jobs that share these options."""


def cannot_generate(model: AnyModel) -> str | None:
    """The reason why no engine can run this model; None if it generates text."""
    return None if model.generates else f"{model.config.architecture} models do not generate text"


def search_all(engine: Engine, jobs: Sequence[Job], config: SearchConfig) -> list[list[Hypothesis]]:
    """The hypotheses of every job, in the order of the jobs."""
    session = engine.start_session(config)
    session.add(sorted(enumerate(jobs), key=lambda item: -len(item[1].tokens)))
    results: list[list[Hypothesis]] = [[] for _ in jobs]
    while session.busy:
        for key, hypotheses in session.step():
            results[key] = hypotheses
    return results


def output_limit(job: Job, config: SearchConfig, longest: int | None) -> int:
    """Maximum number of tokens of a job's output."""
    limit = len(job.tokens) + config.max_extra
    for bound in (config.max_length, longest):
        if bound is not None and bound < limit:
            limit = bound
    return max(limit, len(job.prefix))
