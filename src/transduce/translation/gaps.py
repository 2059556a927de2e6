"""Where the text that outputs lack belongs: places beside the words of an output, or words that are to be replaced.

The place of a missing text is where cross-attention is highest for the corresponding source token; a term of a glossary
takes the place of the words that translate it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from transduce.files.scripts import has_spaces
from transduce.models.forced_decoding import Attention, OutputReader
from transduce.search.engine import Engine
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import BYTE_TOKEN, ESCAPE, SLOTS, SPACE_MARK
from transduce.translation.part import Part, Required

_MOST = 0.5
"""Share of the attention of a word that a term must have to take its place."""
Outputs = Sequence[tuple[Part, list[int]]]


def missing(part: Part, marked: str) -> list[Required]:
    """What a marked output lacks: text that it does not contain as often as required, slots that are not there once."""
    needed: Counter[str] = Counter()
    result = []
    for one in part.required:
        needed[one.marked] += 1
        times = marked.count(one.marked) if one.is_slot else len(one.pattern.findall(marked))
        if times < needed[one.marked] or (one.is_slot and times > 1):
            result.append(one)
    return result


class Gap(NamedTuple):
    """A range of an output's tokens in whose place a missing text belongs; it is empty if nothing is to be replaced."""

    start: int
    end: int
    required: Required


@dataclass(frozen=True)
class Gaps:
    """An output without repeated slots, and where the text that it lacks belongs."""

    part: Part
    tokens: list[int]
    places: list[Gap]

    def remain_in(self, tokens: Sequence[int]) -> bool:
        """Whether another output still has words that are to be replaced."""
        replaced = (self.tokens[gap.start : gap.end] for gap in self.places if gap.start < gap.end)
        return any(
            list(tokens[start : start + len(words)]) == words
            for words in replaced
            for start in range(len(tokens) - len(words) + 1)
        )


class GapFinder:
    """Finds what outputs of one model lack, and where it belongs."""

    def __init__(self, reader: OutputReader, tokenizer: AnyTokenizer) -> None:
        self._reader, self._source, self._target = reader, tokenizer, tokenizer.target
        self._tags = language_tags(tokenizer)

    def missing(self, outputs: Outputs) -> list[list[Required]]:
        """What each output lacks."""
        texts = self._target.decode_all([tokens for _, tokens in outputs], marked=True) if outputs else []
        return [missing(part, text) for (part, _), text in zip(outputs, texts, strict=True)]

    def gaps(self, outputs: Outputs, engine: Engine, *, replace_words: bool = True) -> list[Gaps]:
        """The outputs without repeated slots, and the text that each lacks then with the places where it belongs.

        With `replace_words`, these are those of the words that translate a term.
        """
        lacking = self.missing(outputs)
        weights = self._weights(outputs, engine)
        stripped = []
        for (part, tokens), lacks, weights_TS in zip(outputs, lacking, weights, strict=True):
            stripped.append((part, self._with_slots_once(tokens, lacks, weights_TS)))
        if stripped != list(outputs):
            lacking, weights = self.missing(stripped), self._weights(stripped, engine)
        return [
            Gaps(part, tokens, [self._gap(part, one, tokens, weights_TS, replace_words) for one in lacks])
            for (part, tokens), lacks, weights_TS in zip(stripped, lacking, weights, strict=True)
        ]

    def _with_slots_once(self, tokens: list[int], lacks: Iterable[Required], weights_TS: Attention | None) -> list[int]:
        """Of a slot that occurs more than once, only the occurrence with the highest attention is kept."""
        removed: set[int] = set()
        for one in lacks:
            if one.is_slot:
                slot = self._target.symbol_ids[one.marked]
                indices = [index for index, token in enumerate(tokens) if token == slot]
                if weights_TS is not None:
                    weight_T = self._attention(one, weights_TS)
                    indices.sort(key=lambda index: -weight_T[index])
                removed |= {*indices[1:]}
        return without(self._target, tokens, removed)

    def _gap(
        self, part: Part, one: Required, tokens: Sequence[int], weights_TS: Attention | None, replace_words: bool
    ) -> Gap:
        if replace_words and one.is_term and weights_TS is not None:
            words = self._translating_words(part, one, tokens, weights_TS)
            if words:
                return Gap(words.start, words.stop, one)
        place = self._place(part, one, tokens, weights_TS)
        return Gap(place, place, one)

    def _translating_words(
        self, part: Part, one: Required, tokens: Sequence[int], weights_TS: Attention
    ) -> range | None:
        """The indices of adjacent output words that attend to a term most of all; None if there are none.

        Words that are required stay, and an output is not replaced as a whole unless the term is the whole text.
        """
        source = range(self._source_index(one), len(self._source.encode_all([one.through], marked=True)[0]))
        others = [n for n, token in enumerate(part.tokens) if n not in source and token not in self._tags]
        shares = []
        for weights_S in weights_TS:
            in_term = sum(weights_S[source.start : source.stop])
            shares.append(in_term / (in_term + sum(weights_S[n] for n in others)))
        needed = tuple(word.lower() for other in part.required if other != one for word in other.marked.split())
        runs: list[tuple[float, range]] = []
        words = self._words(tokens)
        for word, text in words:
            share = fmean(shares[word.start : word.stop])
            if share <= _MOST or text.lower().startswith(needed):
                continue
            if runs and runs[-1][1].stop == word.start:
                runs[-1] = (max(runs[-1][0], share), range(runs[-1][1].start, word.stop))
            else:
                runs.append((share, word))
        best = max(runs, key=lambda run: run[0])[1] if runs else range(0)
        rest = [word for word, _ in words if word.start not in best]
        is_whole = not any(text for _, text in self._words([part.tokens[n] for n in others], self._source))
        begins_after_prefix = best.start >= len(part.prefix)
        return best if best and begins_after_prefix and (rest or is_whole) else None

    def _words(self, tokens: Sequence[int], tokenizer: AnyTokenizer | None = None) -> list[tuple[range, str]]:
        """The indices of each word with letters or digits, and its text."""
        pieces, words = (tokenizer or self._target).pieces(tokens), list[range]()
        for index in range(len(tokens)):
            if index and _inside_word(pieces[index - 1], pieces[index]):
                words[-1] = range(words[-1].start, index + 1)
            else:
                words.append(range(index, index + 1))
        texts = ["".join(pieces[word.start : word.stop]).replace(SPACE_MARK, "") for word in words]
        return [(word, text) for word, text in zip(words, texts, strict=True) if any(map(str.isalnum, text))]

    def _place(self, part: Part, one: Required, tokens: Sequence[int], weights_TS: Attention | None) -> int:
        """The index of the output token that is to follow the text: not inside a word, and not in the prefix."""
        if weights_TS is None:  # the model has no cross-attention
            place = round(len(tokens) * self._source_index(one) / max(len(part.tokens), 1))
        else:
            weight_T = self._attention(one, weights_TS)
            place = max(range(len(tokens) + 1), key=weight_T.__getitem__)
        first = len(part.prefix)
        pieces = self._target.pieces(tokens)
        while first < place < len(tokens) and _inside_word(pieces[place - 1], pieces[place]):
            place -= 1
        place = max(place, first)
        while 0 < place < len(tokens) and _inside_word(pieces[place - 1], pieces[place]):
            place += 1
        return min(place, len(tokens))

    def _source_index(self, one: Required) -> int:
        return len(self._source.encode_all([one.before], marked=True)[0])

    def _attention(self, one: Required, weights_TS: Attention) -> list[float]:
        """The attention of each output token to the first two source tokens of the text, a slot and its space."""
        index = min(self._source_index(one), len(weights_TS[0]) - 1)
        return [sum(weights_S[index : index + 2]) for weights_S in weights_TS]

    def _weights(self, outputs: Outputs, engine: Engine) -> Sequence[Attention | None]:
        """The cross-attention (T, S) of each output."""
        pairs = [(part.tokens, tokens) for part, tokens in outputs]
        reader = engine if isinstance(engine, OutputReader) else self._reader  # an engine is faster than a module
        return list(reader.attention_weights(pairs)) if reader.aligns else [None] * len(outputs)


def slot_ids(tokenizer: AnyTokenizer) -> set[int]:
    """The ids of the slots."""
    return {tokenizer.symbol_ids[slot] for slot in SLOTS if slot in tokenizer.symbol_ids}


def language_tags(tokenizer: AnyTokenizer) -> set[int]:
    """The ids of symbols that are not slots: tags of languages and the like, which have no translation."""
    return {*tokenizer.symbol_ids.values()} - slot_ids(tokenizer)


def without(tokenizer: AnyTokenizer, tokens: Sequence[int], removed: set[int]) -> list[int]:
    """Without the tokens with these indices, and without the space before each."""
    pieces = tokenizer.pieces(tokens) if removed else []
    spaces = {index - 1 for index in removed if index and pieces[index - 1] == SPACE_MARK}
    return [token for index, token in enumerate(tokens) if index not in removed | spaces]


def _inside_word(before: str, after: str) -> bool:
    """Whether two pieces belong to one word or one character, so that no text can be inserted between them."""
    return before == SPACE_MARK or before.endswith(ESCAPE) or bool(BYTE_TOKEN.fullmatch(after)) or has_spaces(after[0])
