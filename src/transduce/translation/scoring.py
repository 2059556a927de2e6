"""Scores given translations with a model."""

from collections.abc import Sequence

from transduce.errors import DataError
from transduce.models.forced_decoding import OutputReader
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import SLOTS, escape, tag_prefix
from transduce.tokenizers.tokenizer import EOS
from transduce.translation.stages.protect import Protection, occurs_once
from transduce.translation.text import Span
from transduce.translation.translation import PairScore


def score_pairs(
    reader: OutputReader,
    tokenizer: AnyTokenizer,
    pairs: Sequence[tuple[str, str]],
    tags: Sequence[str | None],
    protection: Protection | None,
    longest: int | None,
) -> list[PairScore]:
    """The log-probability of each target given its source with the tag of the target language, if it has one.

    With `protection`, the protected spans of a source that its target has too are in slots, as in translation. A side
    of more than `longest` tokens is an error.
    """
    spans = [_shared_spans(*pair, protection) if protection else [] for pair in pairs]
    sources = [
        tag_prefix(tag) + masked(source, [span for span, _ in shared])
        for (source, _), shared, tag in zip(pairs, spans, tags, strict=True)
    ]
    targets = [masked(target, [span for _, span in shared]) for (_, target), shared in zip(pairs, spans, strict=True)]
    encoded = list(
        zip(
            tokenizer.encode_all(sources, -1, marked=True),
            tokenizer.target.encode_all(targets, -1, marked=True),
            strict=True,
        )
    )
    for texts, sides in zip(pairs, encoded, strict=True):
        for text, tokens in zip(texts, sides, strict=True):
            if longest is not None and len(tokens) > longest:
                raise DataError(
                    f"the text {text!r:.60} has {len(tokens):,} tokens, more than the {longest} this model takes; "
                    "shorten it"
                )
    written, scores = tokenizer.target, []
    for (_, target), shared, (_, tokens), log_probs in zip(
        pairs, spans, encoded, reader.token_log_probs(encoded), strict=True
    ):
        ids = [*tokens, EOS]
        slots = {written.symbol_ids[slot]: target[slice(*span)] for (_, span), slot in zip(shared, SLOTS, strict=False)}
        pieces = [slots.get(token, piece) for token, piece in zip(ids, written.pieces(ids), strict=True)]
        scores.append(PairScore(sum(log_probs), pieces, log_probs))
    return scores


def _shared_spans(source: str, target: str, protection: Protection) -> list[tuple[Span, Span]]:
    """The protected spans that occur once on both sides, as in training, with their places; one for each slot."""
    shared: list[tuple[Span, Span]] = []
    for span in protection.spans(source):
        text = source[slice(*span)]
        if occurs_once(text, source) and occurs_once(text, target):
            place = target.index(text)
            there = Span(place, place + len(text))
            if all(there.end <= other.start or other.end <= there.start for _, other in shared):
                shared.append((span, there))
    return shared[: len(SLOTS)]


def masked(text: str, spans: Sequence[Span]) -> str:
    """The marked text with slots for the spans, which are in the order of the source."""
    parts, end = [], 0
    for span, slot in sorted(zip(spans, SLOTS, strict=False)):
        parts += [escape(text[end : span.start]), slot]
        end = span.end
    return "".join([*parts, escape(text[end:])])
