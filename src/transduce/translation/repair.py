"""Makes sure that outputs contain the text that is required: protected spans, and the terms of a glossary.

The best output of a part is searched for again if something is missing, with a prefix up to the place where the missing
text belongs and the text itself. If the new output is much less probable, still incomplete, or makes a longer word of a
term, the text is inserted into the original output at that place, and the score of the search decides between the two.
A term takes the place of the words that translate it; a new output that has both is not used.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from transduce.models.forced_decoding import OutputReader
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.symbols import SLOTS, unescape
from transduce.translation.gaps import Gap, GapFinder, Gaps, language_tags, slot_ids, without
from transduce.translation.paired_tags import paired_tags
from transduce.translation.part import Part
from transduce.translation.truecase import in_capitals

_ROUNDS = 2
"""Number of searches with a prefix for one output."""
_MARGIN = 1.5
"""Log-probability per token that an output may lose by a new search, before an insertion is tried as well. This
includes the missing text itself, which the model did not choose."""
_PASSES = 3
"""Number of times that text is inserted: an insertion may separate the words of a term."""
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_SLOT = re.compile(f"([{''.join(SLOTS)}])")


def output_text(marked: str, part: Part) -> str:
    """The text of an output: slots are replaced by what they stand for, and unknown ones are left out."""
    originals = {one.marked: one.text for one in part.required if one.is_slot}
    marked = _with_nested_tags(marked, {slot: text for slot, text in originals.items() if _TAG.fullmatch(text)})
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


def _with_nested_tags(marked: str, tags: Mapping[str, str]) -> str:
    """The output; if a tag closes before it opens, or inside of another pair, tags are in the order of the source."""
    starts = accumulate(map(len, tags.values()), initial=0)
    paired = {tag.start() for tag in paired_tags("".join(tags.values()))}
    slots = [slot for slot, start in zip(tags, starts, strict=False) if start in paired]
    found = [character for character in marked if character in slots]
    is_complete = sorted(found) == sorted(slots)  # the beginning of an output is not
    if not is_complete or len(paired_tags("".join(tags[slot] for slot in found))) == len(found):
        return marked
    in_order = iter(slots)
    return "".join(next(in_order) if character in slots else character for character in marked)


class Repairer:
    """Repairs outputs of one model."""

    def __init__(self, reader: OutputReader, tokenizer: AnyTokenizer) -> None:
        self._source, self._target = tokenizer, tokenizer.target
        self._slots = slot_ids(self._target)
        self._tags = language_tags(tokenizer)
        self._finder = GapFinder(reader, tokenizer)

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
        lacking = self._finder.missing([(parts[i], repaired[i][rank].tokens) for i, rank in others])
        failing = [at for at, lacks in zip(others, lacking, strict=True) if lacks]
        if not (copied or failing):
            return repaired
        gaps = dict(
            zip(
                failing,
                self._finder.gaps([(parts[i], repaired[i][rank].tokens) for i, rank in failing], engine),
                strict=True,
            )
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
        return replace(one, tokens=without(self._target, one.tokens, stray)) if stray else one

    def _copy(self, part: Part) -> list[int]:
        """The source as an output: without the tag of a language."""
        tagged = {index for index, token in enumerate(part.tokens) if token in self._tags}
        tokens = without(self._source, part.tokens, tagged)
        if not isinstance(self._source, TokenizerPair):
            return tokens
        return self._target.encode_all(self._source.decode_all([tokens], marked=True), marked=True)[0]

    def _retried(self, gaps: Sequence[Gaps], config: SearchConfig, engine: Engine) -> list[Hypothesis | None]:
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
            lacking = {n: bool(lacks) for n, lacks in zip(searched, self._finder.missing(outputs), strict=True)}
            found = [
                searched[n] if lacking.get(n) is False and self._is_sound(gaps[n], searched[n]) else one
                for n, one in enumerate(found)
            ]
            again = [(n, output) for n, output in zip(searched, outputs, strict=True) if lacking[n]]
            if not (rounds_left and again):
                break
            current = dict(
                zip((n for n, _ in again), self._finder.gaps([one for _, one in again], engine), strict=True)
            )
        return found

    def _is_sound(self, gaps: Gaps, output: Hypothesis) -> bool:
        """Whether no term is the beginning of a longer word, or beside the words that it replaces.

        The search may continue a forced term in these ways.
        """
        (marked,) = self._target.decode_all([output.tokens], marked=True)
        is_longer = any(one.longer_word.search(marked) for one in gaps.part.required if one.is_term)
        return not is_longer and not gaps.remain_in(output.tokens)

    def _retry(self, gaps: Gaps) -> Part | None:
        """A job whose prefix ends with the missing text that comes first; None if there are only repeated slots."""
        if not gaps.places:
            return None
        first = min(gaps.places, key=lambda gap: gap.start)
        return replace(gaps.part, prefix=[*gaps.tokens[: first.start], *self._encoded(first, gaps.tokens)])

    def _filled(self, gaps: Sequence[Gaps], engine: Engine) -> list[list[int]]:
        """The outputs with the missing text inserted, or in place of the words that translate a term."""
        results: list[list[int]] = [[] for _ in gaps]
        current = dict(enumerate(gaps))
        for passes_left in reversed(range(_PASSES)):
            for n, own in current.items():
                tokens, end = own.tokens, len(own.tokens)
                for gap in sorted(own.places, key=lambda gap: gap.start, reverse=True):
                    tokens = [*tokens[: gap.start], *self._encoded(gap, own.tokens), *tokens[min(gap.end, end) :]]
                    end = gap.start
                results[n] = tokens
            outputs = [(gaps[n].part, results[n]) for n in current]
            still = [n for n, lacks in zip(current, self._finder.missing(outputs), strict=True) if lacks]
            if not (passes_left and still):
                break
            filled = [(gaps[n].part, results[n]) for n in still]
            current = dict(zip(still, self._finder.gaps(filled, engine, replace_words=False), strict=True))
        return results

    def _encoded(self, gap: Gap, output: Sequence[int]) -> list[int]:
        """The tokens of a missing text; a term that begins an output has a capital letter if the output has one."""
        text = gap.required.marked
        if gap.required.is_term and gap.start == 0:
            (marked,) = self._target.decode_all([output], marked=True)
            text = text[0].upper() + text[1:] if marked[:1].isupper() else text
        return self._target.encode_all([text], marked=True)[0]

    def _scored(
        self, parts: Sequence[Part], outputs: Mapping[tuple[int, int], list[int]], config: SearchConfig, engine: Engine
    ) -> list[Hypothesis]:
        """Outputs, by number of the part and rank, with the scores of searches whose prefixes they are."""
        jobs = [replace(parts[i], prefix=tokens) for (i, _), tokens in outputs.items()]
        # No token may follow the prefix: an output is at most as long as its prefix or `max_length`.
        forced = replace(config, beam=1, nbest=1, sample=False, no_repeat=0, min_length=0, max_length=1)
        return [best for (best,) in search_all(engine, jobs, forced)]


def _per_token(one: Hypothesis) -> float:
    return one.log_prob / (len(one.tokens) + 1)
