"""Reranking: choose among n-best outputs by the scores of other models."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from transduce.errors import ConfigError, DataError
from transduce.files.files import raw_lines
from transduce.files.languages import base_language, describe_directions
from transduce.translation.translator import Translator

Record = dict[str, Any]
"""A line of `transduce translate --jsonl`: `source`, and `translations` with `text`, `log_prob` and `tokens`."""

_MAX_LINE_BYTES = 1 << 28
_WINDOW = 256
"""Records that are scored together."""


def read_records(path: Path) -> Iterator[Record]:
    """Parse a file of lines of `transduce translate --jsonl`."""
    for number, line in enumerate(raw_lines(path, _MAX_LINE_BYTES), start=1):
        try:
            record = json.loads(line or b"")
            json.dumps(record, ensure_ascii=False).encode()  # a ValueError for lone surrogates
            source, translations = record["source"], record["translations"]
            fields = [
                (candidate["text"], float(candidate["log_prob"]), len(candidate["tokens"]))
                for candidate in translations
            ]
        except (ValueError, TypeError, KeyError, RecursionError):
            fields = []
        if not all(math.isfinite(log_prob) for _, log_prob, _ in fields):
            raise DataError(f"{path}, line {number}: a log-probability is not a number")
        if not fields or not all(isinstance(text, str) for text in (source, *(text for text, _, _ in fields))):
            raise DataError(f"{path}, line {number}: not a line of output of: transduce translate --jsonl")
        yield record


def rerank(
    records: Iterable[Record],
    models: Sequence[Translator],
    reverse: Translator | None = None,
    weight: float = 1.0,
    *,
    to: str | None = None,
    source: str | None = None,
) -> Iterator[Record]:
    """Yield each record with its translations ordered by a new `score`, best first.

    The score of an output y for a source x is log P(y|x) per token of y, the mean over the models, plus `weight` times
    log P(x|y) per token of x by the `reverse` model (noisy-channel reranking). End markers count as tokens. Without
    models, P(y|x) is that of the search that made the records. Models may have different vocabularies. `to` and
    `source` are the languages of outputs and sources, which multilingual models require.
    """
    if not models and reverse is None:
        raise ConfigError("there is no model to rerank with; name models, a reverse model or both")
    _require_common_direction(models, reverse)
    remaining = iter(records)
    while window := list(islice(remaining, _WINDOW)):
        translations = [candidate for record in window for candidate in record["translations"]]
        sources = [record["source"] for record in window for _ in record["translations"]]
        outputs = [candidate["text"] for candidate in translations]
        forward = [[candidate.per_token for candidate in model.score(sources, outputs, to=to)] for model in models]
        if not models:
            forward = [[candidate["log_prob"] / (len(candidate["tokens"]) + 1) for candidate in translations]]
        backward = (
            [candidate.per_token for candidate in reverse.score(outputs, sources, to=source)]
            if reverse
            else [0.0] * len(outputs)
        )
        for candidate, *scores, channel in zip(translations, *forward, backward, strict=True):
            candidate["score"] = sum(scores) / len(scores) + weight * channel
        for record in window:
            record["translations"].sort(key=lambda candidate: -candidate["score"])
            yield record


def _require_common_direction(models: Sequence[Translator], reverse: Translator | None) -> None:
    """Raise an error if models that tell their languages cannot score the same pairs; regions are not compared."""
    told = [model.directions for model in models if model.directions]
    messages = [f"a model translates {describe_directions(directions)}" for directions in told]
    if reverse and reverse.directions:
        told.append([(target, source) for source, target in reverse.directions])
        messages.append(f"the reverse model translates {describe_directions(reverse.directions)}")
    languages = [
        {(base_language(source), base_language(target)) for source, target in directions} for directions in told
    ]
    if languages and not set.intersection(*languages):
        raise ConfigError(f"the models do not score the same direction: {'; '.join(messages)}")
