"""Turns the hypotheses of a search into translations: text, pieces, alignment and confidence."""

from collections.abc import Iterator, Sequence
from itertools import repeat

from transduce.models.forced_decoding import OutputReader
from transduce.search.decoder import Hypothesis
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.token_ranges import align_characters
from transduce.translation.confidence import Calibration, observe
from transduce.translation.inline_tags import TaggedText
from transduce.translation.part import Part
from transduce.translation.project_tags import project
from transduce.translation.repair import output_text
from transduce.translation.translation import Translation


def decode_outputs(
    reader: OutputReader,
    tokenizer: AnyTokenizer,
    parts: Sequence[Part],
    results: Sequence[list[Hypothesis]],
    *,
    align: bool,
    calibrations: Sequence[Calibration | None] | None,
) -> Iterator[list[Translation]]:
    """The hypotheses of each part as translations.

    With `calibrations`, one for each part, they have the confidence of outputs and words; if a part has none, only that
    of words.
    """
    hypotheses = [(part, one) for part, best in zip(parts, results, strict=True) for one in best]
    to_align = [(part.tokens, one.tokens) for part, one in hypotheses if align or part.tagged]
    alignments = _alignments(reader, to_align)
    outputs = [one.tokens for _, one in hypotheses]
    texts = iter(tokenizer.target.decode_all(outputs, threads=-1, marked=True) if outputs else [])
    confidences: Iterator[tuple[float | None, list[float] | None]] = repeat((None, None))
    if calibrations is not None:
        confidences = _confidences(reader, tokenizer, parts, results, calibrations)
    for part, best in zip(parts, results, strict=True):
        translations = []
        for one in best:
            text, tokens = output_text(next(texts), part), pieces(tokenizer.target, part, one.tokens)
            alignment = _with_own_slots(next(alignments), tokenizer, part, one) if align or part.tagged else None
            if part.tagged and alignment is not None:
                source_tokens = pieces(tokenizer, part, part.tokens)
                text = _with_tags(part.tagged, source_tokens, text, tokens, alignment)
            more = alignment if align else None, *next(confidences)
            translations.append(Translation(text, one.score, one.log_prob, tokens, *more))
        yield translations


def pieces(tokenizer: AnyTokenizer, part: Part, tokens: Sequence[int]) -> list[str]:
    """The pieces of source or output tokens of a part; a slot is the text that it stands for."""
    originals = {tokenizer.symbol_ids[one.marked]: one.text for one in part.required if one.is_slot}
    own = tokenizer.pieces(tokens)
    if originals:
        return [originals.get(token, piece) for token, piece in zip(tokens, own, strict=True)]
    return own


def _with_tags(tagged: TaggedText, source_tokens: list[str], text: str, tokens: list[str], alignment: list[int]) -> str:
    """The output with the tags of the source around the words that translate those inside of them."""
    if text == tagged.text:
        aligned = [((index, index + 1), (index, index + 1)) for index in range(len(text))]
    else:
        aligned = align_characters(source_tokens, tagged.text, tokens, text, alignment)
    return project(tagged, text, aligned, str)


def _alignments(reader: OutputReader, pairs: list[tuple[list[int], list[int]]]) -> Iterator[list[int]]:
    """The index of the source token with the highest weight for each output token, without end markers."""
    for weights_TS in reader.attention_weights(pairs):
        yield [max(range(len(weights_S) - 1), key=weights_S.__getitem__) for weights_S in weights_TS[:-1]]


def _with_own_slots(alignment: list[int], tokenizer: AnyTokenizer, part: Part, output: Hypothesis) -> list[int]:
    """The alignment, in which a slot is aligned with itself."""
    slots = [one.marked for one in part.required if one.is_slot]
    own = {tokenizer.target.symbol_ids[slot]: part.tokens.index(tokenizer.symbol_ids[slot]) for slot in slots}
    return [own.get(token, index) for token, index in zip(output.tokens, alignment, strict=True)]


def _confidences(
    reader: OutputReader,
    tokenizer: AnyTokenizer,
    parts: Sequence[Part],
    results: Sequence[list[Hypothesis]],
    calibrations: Sequence[Calibration | None],
) -> Iterator[tuple[float | None, list[float]]]:
    """The confidence of each hypothesis of each part if there is a calibration, and that of its words."""
    for part, calibration, own in zip(parts, calibrations, observe(reader, tokenizer, parts, results), strict=True):
        for evidence in own:
            if part.is_untranslatable:
                yield 1.0, [1.0] * len(part.text.split())
            else:
                confidence = calibration.confidence(evidence.features) if calibration else None
                yield confidence, evidence.words
