"""Makes sure that outputs contain the text that is required: protected spans, and the terms of a glossary.

The best output of a part is searched for again if something is missing, with a prefix up to the place where the missing
text belongs and the text itself. If the new output is much less probable, still incomplete, or makes a longer word of a
term, the text is inserted into the original output at that place, and the score of the search decides between the two.
The place is where cross-attention is highest for the corresponding source token. A term takes the place of the words
that translate it there; a new output that has both is not used.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from transduce.engines.engine import Aligner, Engine, search_all
from transduce.models.given_outputs import attention_weights, can_align
from transduce.models.stored import AnyModel
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.scripts import has_spaces
from transduce.text.symbols import BYTE_TOKEN, ESCAPE, SLOTS, SPACE_MARK, unescape
from transduce.text.tokenizer_pair import TokenizerPair
from transduce.text.truecase import in_capitals
from transduce.translator.parts import Part, Required

_ROUNDS = 2
"""Number of searches with a prefix for one output."""
_MARGIN = 1.5
"""Log-probability per token that an output may lose by a new search, before an insertion is tried as well. This
includes the missing text itself, which the model did not choose."""
_MOST = 0.5
"""Share of the attention of a word that a term must have to take its place."""
_PASSES = 3
"""Number of times that text is inserted: an insertion may separate the words of a term."""
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_SLOT = re.compile(f"([{''.join(SLOTS)}])")
_Outputs = Sequence[tuple[Part, list[int]]]
_Weights = npt.NDArray[np.float32]


def output_text(marked: str, part: Part) -> str:
    """The text of an output: slots are replaced by what they stand for, and unknown ones are left out."""
    originals = {one.marked: one.text for one in part.required if one.is_slot}
    for slot, original in originals.items():
        if _TAG.fullmatch(original):  # no space between a tag and its words if the source has none there
            if re.search(re.escape(original) + r"\S", part.text):
                marked = marked.replace(f"{slot} ", slot)
            if re.search(r"\S" + re.escape(original), part.text):
                marked = marked.replace(f" {slot}", slot)
    pieces = _SLOT.split(marked)
    # A forced prefix keeps its letters.
    finish = in_capitals if part.shape == "capitals" and not part.prefix else str
    text = "".join(originals.get(piece, "") if piece in SLOTS else finish(unescape(piece)) for piece in pieces)
    return text if part.prefix else text.rstrip(" ")


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


class _Gap(NamedTuple):
    """A range of an output's tokens in whose place a missing text belongs; it is empty if nothing is to be replaced."""

    start: int
    end: int
    required: Required


@dataclass(frozen=True)
class _Gaps:
    """An output without repeated slots, and where the text that it lacks belongs."""

    part: Part
    tokens: list[int]
    places: list[_Gap]

    def remain_in(self, tokens: Sequence[int]) -> bool:
        """Whether another output still has words that are to be replaced."""
        replaced = (self.tokens[gap.start : gap.end] for gap in self.places if gap.start < gap.end)
        return any(
            list(tokens[start : start + len(words)]) == words
            for words in replaced
            for start in range(len(tokens) - len(words) + 1)
        )


class Repairer:
    """Repairs outputs of one model."""

    def __init__(self, model: AnyModel, tokenizer: AnyTokenizer) -> None:
        self._model, self._source, self._target = model, tokenizer, tokenizer.target
        self._slots = _slots(self._target)
        self._tags = {*tokenizer.symbol_ids.values()} - _slots(tokenizer)
        """Symbols such as the tag of a language, which have no translation."""

    def repair(
        self, parts: Sequence[Part], results: Sequence[list[Hypothesis]], config: SearchConfig, engine: Engine
    ) -> list[list[Hypothesis]]:
        """The results; hypotheses without what their part requires are replaced or changed, and keep their rank."""
        repaired = [
            [one if self._slots.isdisjoint(one.tokens) else self._with_own_slots(part, one) for one in best]
            for part, best in zip(parts, results, strict=True)
        ]
        every = [(i, rank) for i, best in enumerate(repaired) for rank in range(len(best))]
        copied = [(i, rank) for i, rank in every if parts[i].is_untranslatable]
        others = [(i, rank) for i, rank in every if parts[i].required and not parts[i].is_untranslatable]
        lacking = self._missing([(parts[i], repaired[i][rank].tokens) for i, rank in others])
        failing = [at for at, lacks in zip(others, lacking, strict=True) if lacks]
        if not (copied or failing):
            return repaired
        gaps = dict(
            zip(failing, self._gaps([(parts[i], repaired[i][rank].tokens) for i, rank in failing], engine), strict=True)
        )
        best = [i for i, rank in failing if rank == 0]
        retried = dict(zip(best, self._retried([gaps[i, 0] for i in best], config, engine), strict=True))
        for i in best:
            new = retried[i]
            if new and _per_token(new) >= _per_token(repaired[i][0]) - _MARGIN:
                repaired[i][0] = new
                del gaps[i, 0]
        changed = {(i, rank): self._copy(parts[i]) for i, rank in copied}
        changed |= dict(zip(gaps, self._filled([*gaps.values()], engine), strict=True))
        for (i, rank), one in zip(changed, self._scored(parts, changed, config, engine), strict=True):
            rival = retried.get(i) if rank == 0 else None
            repaired[i][rank] = rival if rival and rival.score > one.score else one
        return repaired

    def _with_own_slots(self, part: Part, one: Hypothesis) -> Hypothesis:
        """Without the slots of other parts."""
        own = {self._target.symbol_ids[required.marked] for required in part.required if required.is_slot}
        stray = {index for index, token in enumerate(one.tokens) if token in self._slots and token not in own}
        return replace(one, tokens=_without(self._target, one.tokens, stray)) if stray else one

    def _copy(self, part: Part) -> list[int]:
        """The source as an output: without the tag of a language."""
        tagged = {index for index, token in enumerate(part.tokens) if token in self._tags}
        tokens = _without(self._source, part.tokens, tagged)
        if not isinstance(self._source, TokenizerPair):
            return tokens
        return self._target.encode_all(self._source.decode_all([tokens], marked=True), marked=True)[0]

    def _missing(self, outputs: _Outputs) -> list[list[Required]]:
        texts = self._target.decode_all([tokens for _, tokens in outputs], marked=True) if outputs else []
        return [missing(part, text) for (part, _), text in zip(outputs, texts, strict=True)]

    def _retried(self, gaps: Sequence["_Gaps"], config: SearchConfig, engine: Engine) -> list[Hypothesis | None]:
        """New outputs with everything that is required, or None."""
        found: list[Hypothesis | None] = [None] * len(gaps)
        current = dict(enumerate(gaps))
        # The prefix decides most of the output: a narrower beam finds nearly the same rest in less time.
        narrow = replace(config, nbest=1, beam=(config.beam + 1) // 2)
        for rounds_left in reversed(range(_ROUNDS)):
            retries = {n: retry for n, own in current.items() if (retry := self._retry(own))}
            searched = {
                n: self._with_own_slots(retry, results[0])
                for (n, retry), results in zip(
                    retries.items(), search_all(engine, [*retries.values()], narrow), strict=True
                )
                if results
            }
            outputs = [(gaps[n].part, new.tokens) for n, new in searched.items()]
            lacking = {n: bool(lacks) for n, lacks in zip(searched, self._missing(outputs), strict=True)}
            found = [
                searched[n] if lacking.get(n) is False and self._is_sound(gaps[n], searched[n]) else one
                for n, one in enumerate(found)
            ]
            again = [(n, output) for n, output in zip(searched, outputs, strict=True) if lacking[n]]
            if not (rounds_left and again):
                break
            current = dict(zip((n for n, _ in again), self._gaps([one for _, one in again], engine), strict=True))
        return found

    def _is_sound(self, gaps: "_Gaps", output: Hypothesis) -> bool:
        """Whether no term is the beginning of a longer word, or beside the words that it replaces.

        The search may continue a forced term in these ways.
        """
        (marked,) = self._target.decode_all([output.tokens], marked=True)
        is_longer = any(one.longer_word.search(marked) for one in gaps.part.required if one.is_term)
        return not is_longer and not gaps.remain_in(output.tokens)

    def _retry(self, gaps: "_Gaps") -> Part | None:
        """A job whose prefix ends with the missing text that comes first; None if there are only repeated slots."""
        if not gaps.places:
            return None
        first = min(gaps.places, key=lambda gap: gap.start)
        return replace(gaps.part, prefix=[*gaps.tokens[: first.start], *self._encoded(first.required)])

    def _filled(self, gaps: Sequence["_Gaps"], engine: Engine) -> list[list[int]]:
        """The outputs with the missing text inserted, or in place of the words that translate a term."""
        results: list[list[int]] = [[] for _ in gaps]
        current = dict(enumerate(gaps))
        for passes_left in reversed(range(_PASSES)):
            for n, own in current.items():
                tokens, end = own.tokens, len(own.tokens)
                for gap in sorted(own.places, key=lambda gap: gap.start, reverse=True):
                    tokens = [*tokens[: gap.start], *self._encoded(gap.required), *tokens[min(gap.end, end) :]]
                    end = gap.start
                results[n] = tokens
            outputs = [(gaps[n].part, results[n]) for n in current]
            still = [n for n, lacks in zip(current, self._missing(outputs), strict=True) if lacks]
            if not (passes_left and still):
                break
            filled = [(gaps[n].part, results[n]) for n in still]
            current = dict(zip(still, self._gaps(filled, engine, replace_words=False), strict=True))
        return results

    def _gaps(self, outputs: _Outputs, engine: Engine, *, replace_words: bool = True) -> list["_Gaps"]:
        """The outputs without repeated slots, and the text that each lacks then with the places where it belongs.

        With `replace_words`, these are those of the words that translate a term.
        """
        lacking = self._missing(outputs)
        weights = self._weights(outputs, engine)
        stripped = []
        for (part, tokens), lacks, weights_TS in zip(outputs, lacking, weights, strict=True):
            stripped.append((part, self._with_slots_once(tokens, lacks, weights_TS)))
        if stripped != list(outputs):
            lacking, weights = self._missing(stripped), self._weights(stripped, engine)
        return [
            _Gaps(part, tokens, [self._gap(part, one, tokens, weights_TS, replace_words) for one in lacks])
            for (part, tokens), lacks, weights_TS in zip(stripped, lacking, weights, strict=True)
        ]

    def _with_slots_once(self, tokens: list[int], lacks: Iterable[Required], weights_TS: _Weights | None) -> list[int]:
        """Of a slot that occurs more than once, only the occurrence with the highest attention is kept."""
        removed: set[int] = set()
        for one in lacks:
            if one.is_slot:
                slot = self._target.symbol_ids[one.marked]
                indices = [index for index, token in enumerate(tokens) if token == slot]
                if weights_TS is not None:
                    weight_T = self._attention(one, weights_TS)
                    indices.sort(key=lambda index: -float(weight_T[index]))
                removed |= {*indices[1:]}
        return _without(self._target, tokens, removed)

    def _encoded(self, one: Required) -> list[int]:
        return self._target.encode_all([one.marked], marked=True)[0]

    def _gap(
        self, part: Part, one: Required, tokens: Sequence[int], weights_TS: _Weights | None, replace_words: bool
    ) -> _Gap:
        if replace_words and one.is_term and weights_TS is not None:
            words = self._translating_words(part, one, tokens, weights_TS)
            if words:
                return _Gap(words.start, words.stop, one)
        place = self._place(part, one, tokens, weights_TS)
        return _Gap(place, place, one)

    def _translating_words(
        self, part: Part, one: Required, tokens: Sequence[int], weights_TS: _Weights
    ) -> range | None:
        """The indices of adjacent output words that attend to a term most of all; None if there are none.

        Words that are required stay, and an output is not replaced as a whole unless the term is the whole text.
        """
        source = range(self._source_index(one), len(self._source.encode_all([one.through], marked=True)[0]))
        others = [n for n, token in enumerate(part.tokens) if n not in source and token not in self._tags]
        in_term_T = weights_TS[:, source.start : source.stop].sum(axis=1)
        share_T = in_term_T / (in_term_T + weights_TS[:, others].sum(axis=1))
        needed = tuple(word.lower() for other in part.required if other != one for word in other.marked.split())
        runs: list[tuple[float, range]] = []
        words = self._words(tokens)
        for word, text in words:
            share = float(share_T[word.start : word.stop].mean())
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

    def _place(self, part: Part, one: Required, tokens: Sequence[int], weights_TS: _Weights | None) -> int:
        """The index of the output token that is to follow the text: not inside a word, and not in the prefix."""
        if weights_TS is None:  # the model has no cross-attention
            place = round(len(tokens) * self._source_index(one) / max(len(part.tokens), 1))
        else:
            place = int(self._attention(one, weights_TS)[: len(tokens) + 1].argmax())
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

    def _attention(self, one: Required, weights_TS: _Weights) -> _Weights:
        """The attention of each output token to the first two source tokens of the text, a slot and its space."""
        index = min(self._source_index(one), weights_TS.shape[1] - 1)
        return weights_TS[:, index : index + 2].sum(axis=1)

    def _weights(self, outputs: _Outputs, engine: Engine) -> Sequence[_Weights | None]:
        """The cross-attention (T, S) of each output."""
        pairs = [(part.tokens, tokens) for part, tokens in outputs]
        if isinstance(engine, Aligner):
            return engine.attention_weights(pairs)
        return list(attention_weights(self._model, pairs)) if can_align(self._model) else [None] * len(outputs)

    def _scored(
        self, parts: Sequence[Part], outputs: Mapping[tuple[int, int], list[int]], config: SearchConfig, engine: Engine
    ) -> list[Hypothesis]:
        """Outputs, by number of the part and rank, with the scores of searches whose prefixes they are."""
        jobs = [replace(parts[i], prefix=tokens) for (i, _), tokens in outputs.items()]
        # No token may follow the prefix: an output is at most as long as its prefix or `max_length`.
        forced = replace(config, beam=1, nbest=1, sample=False, no_repeat=0, min_length=0, max_length=1)
        return [best for (best,) in search_all(engine, jobs, forced)]


def _slots(tokenizer: AnyTokenizer) -> set[int]:
    return {tokenizer.symbol_ids[slot] for slot in SLOTS if slot in tokenizer.symbol_ids}


def _without(tokenizer: AnyTokenizer, tokens: Sequence[int], removed: set[int]) -> list[int]:
    """Without the tokens with these indices, and without the space before each."""
    pieces = tokenizer.pieces(tokens) if removed else []
    spaces = {index - 1 for index in removed if index and pieces[index - 1] == SPACE_MARK}
    return [token for index, token in enumerate(tokens) if index not in removed | spaces]


def _per_token(one: Hypothesis) -> float:
    return one.log_prob / (len(one.tokens) + 1)


def _inside_word(before: str, after: str) -> bool:
    """Whether two pieces belong to one word or one character, so that no text can be inserted between them."""
    return before == SPACE_MARK or before.endswith(ESCAPE) or bool(BYTE_TOKEN.fullmatch(after)) or has_spaces(after[0])
