"""The result of translating a text."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice

from transduce.translation.text import Segment


@dataclass(frozen=True)
class Translation:
    """One output for one input."""

    text: str
    score: float
    """Ranking score: log-probability divided by the length penalty."""
    log_prob: float
    tokens: list[str]
    """The pieces of the output without inline tags; a protected span is one piece."""
    alignment: list[int] | None = None
    """For each token, the index of the source token with the highest cross-attention weight; None unless requested."""
    confidence: float | None = None
    """Estimate of chrF / 100, between 0 and 1; None unless requested, and for an empty text."""
    word_confidences: list[float] | None = None
    """The probability of each word between white space, given the words before it; likewise. Tags are no words."""
    uncovered: list[str] | None = None
    """The words of the source that it seems to lack; None unless confidence is requested."""


class Translations(list[Translation]):
    """The translations of a text, best first."""

    def __init__(self, translations: Iterable[Translation], segments: Sequence[Segment]) -> None:
        super().__init__(translations)
        self.segments = segments
        """The segments of the source, to whose tokens the alignments refer."""


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


def join(text: str, segments: Sequence[Segment], parts: Sequence[Translation]) -> Translation:
    """Join the translations of a text's segments; alignments refer to all of their source tokens."""
    starts = accumulate((len(segment.tokens) for segment in segments), initial=0)
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
        confidence=_join_confidences(parts),
        word_confidences=_join_word_confidences(text, parts),
        uncovered=_join_uncovered(parts),
    )


def distinct(texts: Sequence[Sequence[Segment]], translations: Sequence[list[Translation]]) -> list[list[Translation]]:
    """The translations of all segments of texts, without ranks in which a text is translated as in a better one.

    A text has several tokenisations, so a search may find it more than once.
    """
    results, remaining = list[list[Translation]](), iter(translations)
    for segments in texts:
        ranks: dict[tuple[str, ...], tuple[Translation, ...]] = {}
        for rank in zip(*islice(remaining, len(segments)), strict=False):
            ranks.setdefault(tuple(translation.text for translation in rank), rank)
        results += map(list, zip(*ranks.values(), strict=True))
    return results


def _join_uncovered(parts: Sequence[Translation]) -> list[str] | None:
    tested = [part.uncovered for part in parts if part.uncovered is not None]
    return [word for words in tested for word in words] if tested else None


def _join_confidences(parts: Sequence[Translation]) -> float | None:
    """The mean, weighted by the number of tokens."""
    confidences = [part.confidence for part in parts if part.confidence is not None]
    if not parts or len(confidences) < len(parts):
        return None
    weights = [len(part.tokens) + 1 for part in parts]
    return sum(map(operator.mul, confidences, weights)) / sum(weights)


def _join_word_confidences(text: str, parts: Sequence[Translation]) -> list[float] | None:
    """All of the parts' words; a word that continues in the next part, as in Chinese, has the product of both."""
    joined: list[float] = []
    end = 0
    for part in parts:
        if part.word_confidences is None:
            return None
        start = text.index(part.text, end)
        words = list(part.word_confidences)
        if joined and words and not any(map(str.isspace, text[start - 1 : start + 1])):
            joined[-1] *= words.pop(0)
        joined += words
        end = start + len(part.text)
    return joined if parts else None
