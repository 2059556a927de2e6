"""Source words that a translation lacks, found by contrastive conditioning.

A translation that lacks a word is more probable given the source without this word. Attention tells less: the word
beside a gap attends to what is missing there (docs/log.md).
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from transduce.files.languages import Direction
from transduce.models.forced_decoding import OutputReader
from transduce.search.decoder import Hypothesis
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.translation.detection import detected_code, frequent_words
from transduce.translation.stages.search import token_spans
from transduce.translation.text import Segment

_WORD = re.compile(r"[^\W\d_]{4,}(?:['’-][^\W\d_]+)*")
"""A word that may be missed; shorter ones often have no counterpart."""
_MAX_WORDS = 40
"""Words of a segment that are tested, which bounds the time."""


def _tested_words(tokenizer: AnyTokenizer, segment: Segment, frequent: frozenset[str]) -> list[tuple[str, list[int]]]:
    """The words of a segment without the most frequent ones, with the places of their tokens."""
    text, spans = segment.source.characters, token_spans(tokenizer, segment)
    required = [item.span for item in segment.required]  # its presence is certain
    found = []
    for word in _WORD.finditer(text):
        is_required = any(start < word.end() and end > word.start() for start, end in required)
        if not is_required and word[0].lower() not in frequent:
            tokens = [n for n, (start, end) in enumerate(spans) if start < word.end() and end > word.start()]
            found.append((word[0], tokens))
    return found[:_MAX_WORDS]


def uncovered_words(
    reader: OutputReader,
    tokenizer: AnyTokenizer,
    segments: Sequence[Segment],
    hypotheses: Sequence[Hypothesis],
    directions: Iterable[Direction],
) -> Iterator[list[str]]:
    """The words that a hypothesis of each segment seems to lack.

    `directions` are those of the model; the most frequent words of their source languages are not tested.
    """
    frequent = frozenset(word for source, _ in directions for word in frequent_words(detected_code(source)))
    for segment, hypothesis in zip(segments, hypotheses, strict=True):
        words = [] if segment.is_untranslatable else _tested_words(tokenizer, segment, frequent)
        sources = [segment.tokens, *(_without(segment.tokens, places) for _, places in words)]
        pairs = [(source, hypothesis.tokens) for source in sources] if words else []
        whole, *others = [sum(log_probs) for log_probs in reader.token_log_probs(pairs)] if pairs else [0.0]
        yield [word for (word, _), log_prob in zip(words, others, strict=True) if log_prob >= whole]


def _without(tokens: Sequence[int], places: Sequence[int]) -> list[int]:
    return [token for place, token in enumerate(tokens) if place not in places]
