"""The `Engine` contract."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from transduce.models.config import EncoderDecoderConfig
from transduce.models.stored import AnyModel, StoredModel
from transduce.search.decoder import Decoder, Hypothesis
from transduce.search.options import SearchConfig

_MAX_BEAM = 16
ANY, ANY_BUT_END = -1, -2
"""What the fast engines note at a position where no token is forced; the second before the minimum length."""
NO_SHORTLIST = "no lexical shortlist for this model"


@dataclass(frozen=True)
class Job:
    """A sentence to translate, as token ids."""

    tokens: list[int]
    """Source tokens, without markers."""
    prefix: list[int]
    """Forced prefix: the tokens the output must begin with."""
    terms: tuple[int, ...] = field(default=(), kw_only=True)
    """Tokens that the output may need, such as those of a glossary's terms; they are added to a lexical shortlist."""
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
    # Only models that the native engine runs are left as they are stored.
    generates = isinstance(model, StoredModel | Decoder)
    return None if generates else f"{model.config.architecture} models do not generate text"


def gpu_limits(config: EncoderDecoderConfig) -> str | None:
    """What neither of the fast engines computes; `gpu` runs the layers of the model, but has its own attention."""
    if config.heads.kv_heads != config.num_heads:
        return "no grouped heads of keys and values"
    if config.positions == "relative":
        return "no relative positions"
    if config.attention_variant is not None:
        return "no attention other than the paper's"
    return "no models that read sound" if config.source == "audio" else None


def paper_limits(config: EncoderDecoderConfig) -> str | None:
    """What the native engine does not compute: it has the settings of the paper, pre-norm, Swish and SSRU."""
    paper = EncoderDecoderConfig()
    for name in ("norm_type", "activation", "bias", "embedding", "tie_output", "share_positions"):
        if getattr(config, name) not in (getattr(paper, name), *(["swish"] if name == "activation" else [])):
            return f"no models with model.{name} = {str(getattr(config, name)).lower()}"
    return "no rotary positions" if config.positions == "rotary" else gpu_limits(config)


def search_limits(model: AnyModel, options: SearchConfig, *, constrained: bool = False) -> str | None:
    """The search options that the fast engines do not support: they have greedy and beam search."""
    if constrained:
        return "no search that is held to a grammar"
    if model.config.architecture == "ensemble":
        return "no ensembles"
    if options.sample:
        return "no sampling"
    if options.no_repeat:
        return "no blocking of repeated n-grams"
    if options.shortlist and not (isinstance(model, StoredModel) and model.shortlist):
        return NO_SHORTLIST
    if options.beam > _MAX_BEAM:
        return f"no beam above {_MAX_BEAM}"
    return None


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
    limits = [len(job.tokens) + config.max_extra, config.max_length, longest]
    return max(min(limit for limit in limits if limit is not None), len(job.prefix))
