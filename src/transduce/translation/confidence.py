"""Confidence: estimates of the quality of translations without references, calibrated on pairs with references.

The model reads each output once more. A linear function of what it predicts there estimates the chrF of the output
divided by 100; `calibration.py` fits it. docs/log.md says which other features were tried.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

from transduce.errors import ModelError
from transduce.files.languages import Direction
from transduce.models.folder import CARD
from transduce.models.forced_decoding import OutputReader, TokenStatistics
from transduce.search.decoder import Hypothesis
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.translation.detection import detected_code, frequent_words
from transduce.translation.pipeline import output_text
from transduce.translation.stages.search import token_spans
from transduce.translation.text import Segment

FEATURES = ("log_prob", "entropy", "overlap", "attention")
"""Means over an output: of the log-probability, of the entropy, of the `overlap`, and of the highest attention."""
ANY = "any"
"""Key of the calibration of a model without tags of languages, in `facts["confidence"]`."""
_CHARACTERS = 6
"""chrF compares character n-grams up to this length."""
_LARGEST, _SMALLEST_SCALE = 1e6, 1e-9
_WORD = re.compile(r"[^\W\d_]{4,}(?:['’-][^\W\d_]+)*")
"""A word that may be missed; shorter ones often have no counterpart."""
MOST_TESTED_TOKENS = 4096
"""Tokens of an output, as often as it is read to test words of its source, which bounds the time."""


@dataclass(frozen=True)
class Calibration:
    """The fitted function from the features of an output to its confidence."""

    mean: tuple[float, ...]
    """Mean of each feature in the pairs that it was fitted on."""
    scale: tuple[float, ...]
    """Standard deviation of each feature there."""
    weights: tuple[float, ...]
    """Weight of each feature, after it is standardised."""
    intercept: float
    """Confidence of an output whose features are the means."""

    def confidence(self, features: Sequence[float]) -> float:
        """The estimate of chrF / 100, between 0 and 1."""
        columns = zip(features, self.mean, self.scale, self.weights, strict=True)
        estimate = self.intercept + sum((value - mean) / scale * weight for value, mean, scale, weight in columns)
        return min(max(estimate, 0.0), 1.0)

    def to_table(self) -> dict[str, Any]:
        """The calibration in JSON's types."""
        columns = zip(FEATURES, self.mean, self.scale, self.weights, strict=True)
        return {"intercept": self.intercept} | {name: list(values) for name, *values in columns}

    @classmethod
    def from_table(cls, table: Any, where: str) -> "Calibration":
        """The calibration of a model's card, which is untrusted; `where` names it in the error message."""
        rows: list[Any] = [table.get(name) for name in FEATURES] if isinstance(table, dict) else []
        complete = bool(rows) and all(isinstance(row, list) and len(row) == 3 for row in rows)
        numbers = [table.get("intercept"), *(value for row in rows for value in row)] if complete else [None]
        if not all(map(_is_number, numbers)) or not all(row[1] >= _SMALLEST_SCALE for row in rows):
            raise ModelError(
                f"{where} is not a calibration of this version: it must have an intercept, and mean, scale and weight "
                f"of {', '.join(FEATURES)}; write it again with: transduce calibrate"
            )
        mean, scale, weights = zip(*rows, strict=True)
        return cls(mean, scale, weights, table["intercept"])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def read_calibrations(facts: dict[str, Any], folder: Path) -> dict[str, Calibration]:
    """The calibrations of a model by target language; empty if it is not calibrated."""
    where = f"{folder / CARD}: facts.confidence"
    tables = facts.get("confidence", {})
    return {key: Calibration.from_table(table, f"{where}.{key:.20}") for key, table in tables.items()}


@dataclass(frozen=True)
class Evidence:
    """What the confidence of one output is computed from."""

    features: list[float]
    """The `FEATURES`."""
    words: list[float]
    """The probability of each word between white space, given the words before it."""


def observe(
    reader: OutputReader, tokenizer: AnyTokenizer, segments: Sequence[Segment], hypotheses: Sequence[Hypothesis]
) -> list[Evidence]:
    """The evidence for a hypothesis of each segment, by one forward pass."""
    outputs = [hypothesis.tokens for hypothesis in hypotheses]
    statistics = reader.token_statistics(
        [(segment.tokens, output) for segment, output in zip(segments, outputs, strict=True)]
    )
    return [_evidence(tokenizer, *known) for known in zip(segments, outputs, statistics, strict=True)]


def confidences(
    reader: OutputReader,
    tokenizer: AnyTokenizer,
    segments: Sequence[Segment],
    hypotheses: Sequence[Hypothesis],
    calibrations: Sequence[Calibration | None],
) -> Iterator[tuple[float | None, list[float]]]:
    """The confidence of a hypothesis of each segment if there is a calibration for it, and that of its words."""
    observed = observe(reader, tokenizer, segments, hypotheses)
    for segment, calibration, evidence in zip(segments, calibrations, observed, strict=True):
        if segment.is_untranslatable:
            yield 1.0, [1.0] * len(evidence.words)
        else:
            yield calibration.confidence(evidence.features) if calibration else None, evidence.words


def _evidence(tokenizer: AnyTokenizer, segment: Segment, tokens: list[int], statistics: TokenStatistics) -> Evidence:
    prefixes = [tokens[:end] for end in range(1, len(tokens) + 1)]
    texts = (
        [output_text(marked, segment) for marked in tokenizer.target.decode_all(prefixes, marked=True)]
        if tokens
        else []
    )
    text, ends = texts[-1] if texts else "", [len(text) for text in texts]
    return Evidence(output_features(statistics, ends, text), word_probabilities(statistics.log_prob_T, ends, text))


def output_features(statistics: TokenStatistics, ends: Sequence[int], text: str) -> list[float]:
    """The `FEATURES` of an output; `ends` is the number of characters of the text up to the end of each token."""
    means = [fmean(values) for values in (statistics.log_prob_T, statistics.entropy_T, statistics.attention_T)]
    return [*means[:2], _overlap(statistics, ends, text), means[2]]


def _overlap(statistics: TokenStatistics, ends: Sequence[int], text: str) -> float:
    """The expected share of right character n-grams, if a token with the entropy H is right with probability e^-H.

    As in chrF, spaces do not count and the share is the mean over the lengths of n-grams.
    """
    owners = [token for token, start, end in _spans(ends) for letter in text[start:end] if not letter.isspace()]
    if not owners:
        return math.exp(-statistics.entropy_T[-1])
    before = [*accumulate(statistics.entropy_T, initial=0.0)]
    return fmean(
        fmean(math.exp(before[first] - before[last + 1]) for first, last in zip(owners, owners[n:], strict=False))
        for n in range(min(_CHARACTERS, len(owners)))
    )


def word_probabilities(log_probs: Sequence[float], ends: Sequence[int], text: str) -> list[float]:
    """The probability of each word between white space, given the words before it: the product over its tokens.

    `ends` is as in `output_features`.
    """
    spans = [
        (start, max(end, start + 1), log_prob)
        for (_, start, end), log_prob in zip(_spans(ends), log_probs, strict=False)
    ]
    return [
        math.exp(sum(log_prob for start, end, log_prob in spans if start < word.end() and end > word.start()))
        for word in re.finditer(r"\S+", text)
    ]


def _spans(ends: Sequence[int]) -> list[tuple[int, int, int]]:
    """Each token with the range of its characters."""
    return [(token, start, end) for token, (start, end) in enumerate(zip([0, *ends], ends, strict=False))]


def uncovered_words(
    reader: OutputReader,
    tokenizer: AnyTokenizer,
    segments: Sequence[Segment],
    hypotheses: Sequence[Hypothesis],
    directions: Iterable[Direction],
) -> Iterator[list[str]]:
    """The words that a hypothesis of each segment seems to lack, by contrastive conditioning.

    An output that lacks a word is more probable given the source without this word. Attention tells less: the word
    beside a gap attends to what is missing there (docs/log.md).

    `directions` are those of the model; the most frequent words of their source languages are not tested.
    """
    frequent = frozenset(word for source, _ in directions for word in frequent_words(detected_code(source)))
    tested: list[list[str]] = []
    pairs: list[tuple[list[int], list[int]]] = []  # read together, which is faster
    for segment, hypothesis in zip(segments, hypotheses, strict=True):
        words = [] if segment.is_untranslatable else _tested_words(tokenizer, segment, frequent)
        words = words[: MOST_TESTED_TOKENS // (len(hypothesis.tokens) + 1)]
        tested.append([word for word, _ in words])
        sources = [segment.tokens, *(_without(segment.tokens, places) for _, places in words)] if words else []
        pairs += ((source, hypothesis.tokens) for source in sources)
    log_probs = map(sum, reader.token_log_probs(pairs) if pairs else [])
    for words_of_segment in tested:
        whole = next(log_probs) if words_of_segment else 0.0
        yield [word for word in words_of_segment if next(log_probs) >= whole]


def _tested_words(tokenizer: AnyTokenizer, segment: Segment, frequent: frozenset[str]) -> list[tuple[str, list[int]]]:
    """The words of a segment without the most frequent ones, with the places of their tokens."""
    text, spans = segment.source.characters, token_spans(tokenizer, segment)
    required = [item.span for item in segment.required]  # its presence is certain
    found = []
    for word in _WORD.finditer(text, segment.context_end):
        is_required = any(start < word.end() and end > word.start() for start, end in required)
        if not is_required and word[0].lower() not in frequent:
            tokens = [n for n, (start, end) in enumerate(spans) if start < word.end() and end > word.start()]
            found.append((word[0], tokens))
    return found


def _without(tokens: Sequence[int], places: Sequence[int]) -> list[int]:
    return [token for place, token in enumerate(tokens) if place not in places]
