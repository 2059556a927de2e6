"""Scores given translations with a model."""

from collections.abc import Sequence

from transduce.errors import DataError
from transduce.models.given_outputs import token_log_probs
from transduce.models.stored import AnyModel
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.languages import mark
from transduce.text.tokenizer import EOS
from transduce.translator.translation import PairScore


def score_pairs(
    model: AnyModel,
    tokenizer: AnyTokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    tags: Sequence[str | None],
) -> list[PairScore]:
    """The log-probability of each target given its source with the tag of the target language, if it has one."""
    marked = [mark(source, tag) for source, tag in zip(sources, tags, strict=True)]
    encoded = tokenizer.encode_all(marked, -1, marked=True), tokenizer.target.encode_all(targets, -1)
    pairs = list(zip(*encoded, strict=True))
    longest = model.longest
    for texts, sides in zip(zip(sources, targets, strict=True), pairs, strict=True):
        for text, tokens in zip(texts, sides, strict=True):
            if longest is not None and len(tokens) > longest:
                raise DataError(
                    f"the text {text!r:.60} has {len(tokens):,} tokens, more than the {longest} this model takes; "
                    "shorten it"
                )
    return [
        PairScore(sum(log_probs), tokenizer.target.pieces([*target, EOS]), log_probs)
        for (_, target), log_probs in zip(pairs, token_log_probs(model, pairs), strict=True)
    ]
