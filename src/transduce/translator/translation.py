"""The result of translating a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from transduce.engines.engine import Job


@dataclass(frozen=True)
class Translation:
    """One output for one input."""

    text: str
    score: float
    """Ranking score: log-probability divided by the length penalty."""
    log_prob: float
    tokens: list[str]
    """The pieces of the output; a protected span is one piece."""
    alignment: list[int] | None = None
    """For each token, the index of the source token with the highest cross-attention weight; None unless requested."""


@dataclass(frozen=True)
class PairScore:
    """The log-probability of a given translation."""

    log_prob: float
    """The sum over the tokens and the end marker."""
    tokens: list[str]
    """The tokens of the translation and the end marker."""
    token_log_probs: list[float]

    @property
    def per_token(self) -> float:
        """`log_prob` divided by the number of tokens."""
        return self.log_prob / len(self.tokens)


def join(text: str, jobs: Sequence[Job], parts: Sequence[Translation]) -> Translation:
    """Join the translations of a text's parts; alignments refer to the concatenated source tokens of the jobs."""
    starts = accumulate((len(job.tokens) for job in jobs), initial=0)
    aligned = [
        [start + index for index in part.alignment]
        for start, part in zip(starts, parts, strict=False)
        if part.alignment is not None
    ]
    return Translation(
        text=text,
        score=sum(part.score for part in parts),
        log_prob=sum(part.log_prob for part in parts),
        tokens=[token for part in parts for token in part.tokens],
        alignment=list(chain.from_iterable(aligned)) if len(aligned) == len(parts) else None,
    )
