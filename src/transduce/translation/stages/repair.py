"""Makes sure that outputs contain the text that is required: protected spans, and the terms of a glossary.

The best output of a segment is searched for again if something is missing, with a prefix up to the place where the
missing text belongs and the text itself. If the new output is much less probable, still incomplete, or makes a longer
word of a term, the text is inserted into the original output at that place, and the score of the search decides between
the two. A term takes the place of the words that translate it; a new output that has both is not used.

The place of a missing text is where cross-attention is highest for the corresponding source token.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from transduce.files.scripts import has_spaces
from transduce.models.forced_decoding import Attention, OutputReader
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.symbols import BYTE_TOKEN, ESCAPE, SLOTS, SPACE_MARK
from transduce.translation.stages.search import Searches, run_searches, token_spans
from transduce.translation.text import Required, Segment

_MOST = 0.5
"""Share of the attention of a word that a term must have to take its place."""
_ROUNDS = 2
"""Number of searches with a prefix for one output."""
_MARGIN = 1.5
"""Log-probability per token that an output may lose by a new search, before an insertion is tried as well. This
includes the missing text itself, which the model did not choose."""
_PASSES = 3
"""Number of times that text is inserted: an insertion may separate the words of a term."""
Outputs = Sequence[tuple[Segment, list[int]]]


def missing(segment: Segment, marked: str) -> list[Required]:
    """What a marked output lacks: text that it does not contain as often as required, slots that are not there once."""
    needed: Counter[str] = Counter()
    result = []
    for required in segment.required:
        needed[required.marked] += 1
        times = marked.count(required.marked) if required.slot else len(required.pattern.findall(marked))
        if times < needed[required.marked] or (required.slot and times > 1):
            result.append(required)
    return result


class Gap(NamedTuple):
    """A range of an output's tokens in whose place a missing text belongs; it is empty if nothing is to be replaced."""

    start: int
    end: int
    required: Required


@dataclass(frozen=True)
class Gaps:
    """An output without repeated slots, and where the text that it lacks belongs."""

    segment: Segment
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
        texts = self._target.decode_all([tokens for _, tokens in outputs], marked=True) if outputs else []
        return [missing(segment, text) for (segment, _), text in zip(outputs, texts, strict=True)]

    def gaps(self, outputs: Outputs, engine: Engine, *, replace_words: bool = True) -> list[Gaps]:
        """The outputs without repeated slots, and the text that each lacks then with the places where it belongs.

        With `replace_words`, these are those of the words that translate a term.
        """
        lacking = self.missing(outputs)
        weights = self._weights(outputs, engine)
        stripped = []
        for (segment, tokens), lacks, weights_TS in zip(outputs, lacking, weights, strict=True):
            stripped.append((segment, self._with_slots_once(segment, tokens, lacks, weights_TS)))
        if stripped != list(outputs):
            lacking, weights = self.missing(stripped), self._weights(stripped, engine)
        return [
            Gaps(
                segment, tokens, [self._gap(segment, required, tokens, weights_TS, replace_words) for required in lacks]
            )
            for (segment, tokens), lacks, weights_TS in zip(stripped, lacking, weights, strict=True)
        ]

    def _with_slots_once(
        self, segment: Segment, tokens: list[int], lacks: Iterable[Required], weights_TS: Attention | None
    ) -> list[int]:
        """Of a slot that occurs more than once, only the occurrence with the highest attention is kept."""
        removed: set[int] = set()
        for required in lacks:
            if required.slot:
                slot = self._target.symbol_ids[required.marked]
                indices = [index for index, token in enumerate(tokens) if token == slot]
                if weights_TS is not None:
                    weight_T = self._attention(segment, required, weights_TS)
                    indices.sort(key=lambda index: -weight_T[index])
                removed |= {*indices[1:]}
        return without(self._target, tokens, removed)

    def _gap(
        self,
        segment: Segment,
        required: Required,
        tokens: Sequence[int],
        weights_TS: Attention | None,
        replace_words: bool,
    ) -> Gap:
        if replace_words and required.is_term and weights_TS is not None:
            words = self._translating_words(segment, required, tokens, weights_TS)
            if words:
                return Gap(words.start, words.stop, required)
        place = self._place(segment, required, tokens, weights_TS)
        return Gap(place, place, required)

    def _translating_words(
        self, segment: Segment, required: Required, tokens: Sequence[int], weights_TS: Attention
    ) -> range | None:
        """The indices of adjacent output words that attend to a term most of all; None if there are none.

        Words that are required stay, and an output is not replaced as a whole unless the term is the whole text.
        """
        source = self._source_tokens(segment, required)
        others = [n for n, token in enumerate(segment.tokens) if n not in source and token not in self._tags]
        shares = []
        for weights_S in weights_TS:
            in_term = sum(weights_S[source.start : source.stop])
            shares.append(in_term / (in_term + sum(weights_S[n] for n in others)))
        needed = tuple(word.lower() for other in segment.required if other != required for word in other.marked.split())
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
        is_whole = not any(text for _, text in self._words([segment.tokens[n] for n in others], self._source))
        begins_after_prefix = best.start >= len(segment.prefix)
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

    def _place(self, segment: Segment, required: Required, tokens: Sequence[int], weights_TS: Attention | None) -> int:
        """The index of the output token that is to follow the text: not inside a word, and not in the prefix."""
        if weights_TS is None:  # the model has no cross-attention
            place = round(len(tokens) * self._source_tokens(segment, required).start / max(len(segment.tokens), 1))
        else:
            weight_T = self._attention(segment, required, weights_TS)
            place = max(range(len(tokens) + 1), key=weight_T.__getitem__)
        first = len(segment.prefix)
        pieces = self._target.pieces(tokens)
        while first < place < len(tokens) and _inside_word(pieces[place - 1], pieces[place]):
            place -= 1
        place = max(place, first)
        while 0 < place < len(tokens) and _inside_word(pieces[place - 1], pieces[place]):
            place += 1
        return min(place, len(tokens))

    def _source_tokens(self, segment: Segment, required: Required) -> range:
        """The indices of the source tokens of a required text, with the space before it."""
        start = len(segment.source.characters[: required.span.start].rstrip())
        spans = token_spans(self._source, segment)
        first = next((n for n, (begin, end) in enumerate(spans) if max(begin, end - 1) >= start), len(spans))
        last = next((n for n, (begin, _) in enumerate(spans) if begin >= required.span.end), len(spans))
        return range(first, max(first, last))

    def _attention(self, segment: Segment, required: Required, weights_TS: Attention) -> list[float]:
        """The attention of each output token to the first two source tokens of the text, a slot and its space."""
        index = min(self._source_tokens(segment, required).start, len(weights_TS[0]) - 1)
        return [sum(weights_S[index : index + 2]) for weights_S in weights_TS]

    def _weights(self, outputs: Outputs, engine: Engine) -> Sequence[Attention | None]:
        pairs = [(segment.tokens, tokens) for segment, tokens in outputs]
        reader = engine if isinstance(engine, OutputReader) else self._reader  # an engine is faster than a module
        return list(reader.attention_weights(pairs)) if reader.aligns else [None] * len(outputs)


def slot_ids(tokenizer: AnyTokenizer) -> set[int]:
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


class Repairer:
    def __init__(self, reader: OutputReader, tokenizer: AnyTokenizer) -> None:
        self._source, self._target = tokenizer, tokenizer.target
        self._slots = slot_ids(self._target)
        self._tags = language_tags(tokenizer)
        self._finder = GapFinder(reader, tokenizer)

    def repair(
        self, segments: Sequence[Segment], results: Sequence[list[Hypothesis]], config: SearchConfig, engine: Engine
    ) -> list[list[Hypothesis]]:
        """The results after `searches`, which run on their own."""
        return run_searches(engine, self.searches(segments, results, config, engine))

    def searches(
        self, segments: Sequence[Segment], results: Sequence[list[Hypothesis]], config: SearchConfig, engine: Engine
    ) -> Searches[list[list[Hypothesis]]]:
        """The results; hypotheses without what their segment requires are replaced or changed, and keep their rank."""
        repaired = [
            [
                hypothesis if self._slots.isdisjoint(hypothesis.tokens) else self._with_own_slots(segment, hypothesis)
                for hypothesis in best
            ]
            for segment, best in zip(segments, results, strict=True)
        ]
        every = [(i, rank) for i, best in enumerate(repaired) for rank in range(len(best))]
        copied = [(i, rank) for i, rank in every if segments[i].is_untranslatable]
        others = [(i, rank) for i, rank in every if segments[i].required and not segments[i].is_untranslatable]
        lacking = self._finder.missing([(segments[i], repaired[i][rank].tokens) for i, rank in others])
        failing = [at for at, lacks in zip(others, lacking, strict=True) if lacks]
        if not (copied or failing):
            return repaired
        gaps = dict(
            zip(
                failing,
                self._finder.gaps([(segments[i], repaired[i][rank].tokens) for i, rank in failing], engine),
                strict=True,
            )
        )
        best = [i for i, rank in failing if rank == 0]
        found = yield from self._retried([gaps[i, 0] for i in best], config, engine)
        retried = dict(zip(best, found, strict=True))
        for i in best:
            new = retried[i]
            if new and _per_token(new) >= _per_token(repaired[i][0]) - _MARGIN:
                repaired[i][0] = new
                del gaps[i, 0]
        changed = {(i, rank): self._copy(segments[i]) for i, rank in copied}
        changed |= dict(zip(gaps, self._filled([*gaps.values()], engine), strict=True))
        scored = yield from self._scored(segments, changed, config)
        for (i, rank), hypothesis in zip(changed, scored, strict=True):
            rival = retried.get(i) if rank == 0 else None
            repaired[i][rank] = rival if rival and rival.score > hypothesis.score else hypothesis
        return repaired

    def _with_own_slots(self, segment: Segment, hypothesis: Hypothesis) -> Hypothesis:
        """Without the slots of other segments."""
        present = {self._target.symbol_ids[slot] for slot in segment.slots}
        stray = {
            index for index, token in enumerate(hypothesis.tokens) if token in self._slots and token not in present
        }
        return replace(hypothesis, tokens=without(self._target, hypothesis.tokens, stray)) if stray else hypothesis

    def _copy(self, segment: Segment) -> list[int]:
        """The source as an output: without the tag of a language."""
        tagged = {index for index, token in enumerate(segment.tokens) if token in self._tags}
        tokens = without(self._source, segment.tokens, tagged)
        if not isinstance(self._source, TokenizerPair):
            return tokens
        return self._target.encode_all(self._source.decode_all([tokens], marked=True), marked=True)[0]

    def _retried(self, gaps: Sequence[Gaps], config: SearchConfig, engine: Engine) -> Searches[list[Hypothesis | None]]:
        """New outputs with everything that is required, or None."""
        found: list[Hypothesis | None] = [None] * len(gaps)
        current = dict(enumerate(gaps))
        # The prefix decides most of the output: a narrower beam finds nearly the same rest in less time.
        narrow = replace(config, nbest=1, beam=(config.beam + 1) // 2)
        for rounds_left in reversed(range(_ROUNDS)):
            retries = {n: retry for n, output_gaps in current.items() if (retry := self._retry(output_gaps))}
            results = yield [*retries.values()], narrow
            searched = {
                n: self._with_own_slots(retry, hypotheses[0])
                for (n, retry), hypotheses in zip(retries.items(), results, strict=True)
                if hypotheses
            }
            outputs = [(gaps[n].segment, new.tokens) for n, new in searched.items()]
            lacking = {n: bool(lacks) for n, lacks in zip(searched, self._finder.missing(outputs), strict=True)}
            found = [
                searched[n] if lacking.get(n) is False and self._is_sound(gaps[n], searched[n]) else previous
                for n, previous in enumerate(found)
            ]
            again = [(n, output) for n, output in zip(searched, outputs, strict=True) if lacking[n]]
            if not (rounds_left and again):
                break
            current = dict(
                zip((n for n, _ in again), self._finder.gaps([output for _, output in again], engine), strict=True)
            )
        return found

    def _is_sound(self, gaps: Gaps, output: Hypothesis) -> bool:
        """Whether no term is the beginning of a longer word, or beside the words that it replaces.

        The search may continue a forced term in these ways.
        """
        (marked,) = self._target.decode_all([output.tokens], marked=True)
        is_longer = any(required.longer_word.search(marked) for required in gaps.segment.required if required.is_term)
        return not is_longer and not gaps.remain_in(output.tokens)

    def _retry(self, gaps: Gaps) -> Segment | None:
        """A job whose prefix ends with the missing text that comes first; None if there are only repeated slots."""
        if not gaps.places:
            return None
        first = min(gaps.places, key=lambda gap: gap.start)
        return replace(gaps.segment, prefix=[*gaps.tokens[: first.start], *self._encoded(first, gaps.tokens)])

    def _filled(self, gaps: Sequence[Gaps], engine: Engine) -> list[list[int]]:
        """The outputs with the missing text inserted, or in place of the words that translate a term."""
        results: list[list[int]] = [[] for _ in gaps]
        current = dict(enumerate(gaps))
        for passes_left in reversed(range(_PASSES)):
            for n, output_gaps in current.items():
                tokens, end = output_gaps.tokens, len(output_gaps.tokens)
                for gap in sorted(output_gaps.places, key=lambda gap: gap.start, reverse=True):
                    tokens = [
                        *tokens[: gap.start],
                        *self._encoded(gap, output_gaps.tokens),
                        *tokens[min(gap.end, end) :],
                    ]
                    end = gap.start
                results[n] = tokens
            outputs = [(gaps[n].segment, results[n]) for n in current]
            still = [n for n, lacks in zip(current, self._finder.missing(outputs), strict=True) if lacks]
            if not (passes_left and still):
                break
            filled = [(gaps[n].segment, results[n]) for n in still]
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
        self,
        segments: Sequence[Segment],
        outputs: Mapping[tuple[int, int], list[int]],
        config: SearchConfig,
    ) -> Searches[list[Hypothesis]]:
        """Outputs, by number of the segment and rank, with the scores of searches whose prefixes they are."""
        jobs = [replace(segments[i], prefix=tokens) for (i, _), tokens in outputs.items()]
        # No token may follow the prefix: an output is at most as long as its prefix or `max_length`.
        forced = replace(config, beam=1, nbest=1, sample=False, no_repeat=0, min_length=0, max_length=1)
        results = yield jobs, forced
        return [best for (best,) in results]


def repeated_tokens(segment: Segment, config: SearchConfig, limit: int) -> int:
    """Upper bound on the tokens of the searches that repairs of a segment may need, if its outputs have this limit."""
    if not segment.required:
        return 0
    return (_ROUNDS * ((config.beam + 1) // 2) + config.nbest) * (limit + segment.required_tokens)


def _per_token(hypothesis: Hypothesis) -> float:
    return hypothesis.log_prob / (len(hypothesis.tokens) + 1)
