"""Makes sure that outputs contain the text that is required: protected spans, numbers, and the terms of a glossary.

The search itself writes every slot of a source (search/constraint.py); other text is checked. If an output lacks some,
the segment is searched for again: with the translations of terms in place of the terms in the source, which the model
copies and fits its sentence to, and if that does not help, with slots in place of what is missing. The rival of this is
the first output with terms in place of the words that translate them, by cross-attention; the score of the search
decides. What is still missing, because a model has no slots or an output has reached its limit, is inserted where
cross-attention is highest for the corresponding source token.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from transduce.files.scripts import has_spaces
from transduce.models.forced_decoding import Attention, OutputReader
from transduce.search.decoder import Hypothesis
from transduce.search.engine import Engine
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.symbols import BYTE_TOKEN, ESCAPE, SEPARATOR, SLOTS, SPACE_MARK, escape
from transduce.translation.pipeline import Pipeline
from transduce.translation.stages.search import Searches, token_spans
from transduce.translation.text import Required, Segment

_MOST = 0.5
"""Share of the attention of a word that a term must have to take its place."""
_PASSES = 3
"""Number of times that text is inserted: an insertion may separate the words of a term."""
_SEARCHES = 3
"""Number of searches for a segment: with terms, with slots for what is missing, and with slots for all."""
Place = tuple[int, int]
"""The number of a segment, and the rank of one of its outputs."""
Outputs = Mapping[Place, list[int]]


def missing(segment: Segment, marked: str, *, sound: bool = False) -> list[Required]:
    """What a marked output lacks: text that it does not contain as often as required.

    With `sound`, a term that is the beginning of a longer word is missing: the search may continue a term in this way.
    """
    needed: Counter[str] = Counter()
    result = []
    for required in segment.required:
        needed[required.marked] += 1
        times = len(required.pattern.findall(marked))
        if times < needed[required.marked] or (sound and required.is_term and required.longer_word.search(marked)):
            result.append(required)
    return result


class Repairer:
    def __init__(self, reader: OutputReader, pipeline: Pipeline) -> None:
        self._pipeline, self._source, self._target = pipeline, pipeline.tokenizer, pipeline.tokenizer.target
        self._tags = _tags(self._source)
        self._inserter = Inserter(reader, self._source)

    def searches(
        self, segments: Sequence[Segment], results: Sequence[list[Hypothesis]], config: SearchConfig, engine: Engine
    ) -> Searches[list[list[Hypothesis]]]:
        """The results; hypotheses without what their segment requires are replaced or changed, and keep their rank."""
        places = [(i, rank) for i, best in enumerate(results) for rank in range(len(best))]
        copied = {(i, rank): self._copy(segments[i]) for i, rank in places if segments[i].is_untranslatable}
        outputs = {at: results[at[0]][at[1]].tokens for at in places if segments[at[0]].required and at not in copied}
        lacking = self._inserter.lacking(segments, outputs)
        changed = yield from self._retried(segments, outputs, lacking, self._with_terms, config)
        changed |= copied
        lacking = {at: lacks for at, lacks in lacking.items() if at not in changed}
        in_slots = yield from self._retried(segments, outputs, lacking, self._with_slots, config)
        left = {at: segments[at[0]].required for at in lacking if at not in in_slots}
        in_slots |= yield from self._retried(segments, outputs, left, self._with_slots, config)
        inserted = self._inserter.filled(segments, {at: outputs[at] for at in lacking}, engine, in_slots.keys())
        repaired = [list(best) for best in results]
        candidates = [*changed.items(), *in_slots.items(), *inserted.items()]
        scored: dict[Place, Hypothesis] = {}
        hypotheses = yield from self._scored(segments, candidates, config)
        for (at, _), hypothesis in zip(candidates, hypotheses, strict=True):
            scored[at] = max(scored.get(at, hypothesis), hypothesis, key=lambda candidate: candidate.score)
        for (i, rank), hypothesis in scored.items():
            repaired[i][rank] = hypothesis
        return repaired

    def _retried(
        self,
        segments: Sequence[Segment],
        outputs: Outputs,
        lacking: Mapping[Place, Sequence[Required]],
        rewrite: Callable[[Segment, Sequence[Required]], Segment | None],
        config: SearchConfig,
    ) -> Searches[dict[Place, list[int]]]:
        """Complete outputs of another search, with rewritten sources, in place of those that lack something."""
        jobs = {i: job for (i, _), lacks in [*lacking.items()][::-1] if (job := rewrite(segments[i], lacks))}
        narrow = replace(config, beam=max(config.nbest, (config.beam + 1) // 2))  # it takes less time at the same BLEU
        changed: dict[Place, list[int]] = {}
        results = (yield [*jobs.values()], narrow) if jobs else []
        for (i, job), found in zip(jobs.items(), results, strict=True):
            ranks = [at for at in lacking if at[0] == i]
            changed |= zip(ranks, self._complete(segments[i], job, found, outputs[ranks[0]]), strict=False)
        return changed

    def _copy(self, segment: Segment) -> list[int]:
        """The source as an output: without its context and the tag of a language, and the space before it."""
        pieces = self._source.pieces(segment.tokens)
        removed = {index for index, token in enumerate(segment.tokens) if token in self._tags}
        separator = self._source.symbol_ids.get(SEPARATOR)
        removed |= {*range(segment.tokens.index(separator))} if separator in segment.tokens else set()
        removed |= {index - 1 for index in removed if index and pieces[index - 1] == SPACE_MARK}
        tokens = [token for index, token in enumerate(segment.tokens) if index not in removed]
        if not isinstance(self._source, TokenizerPair):
            return tokens
        return self._target.encode_all(self._source.decode_all([tokens], marked=True), marked=True)[0]

    def _with_terms(self, segment: Segment, lacks: Sequence[Required]) -> Segment | None:
        """A job whose source has the translations of terms; None if none is missing or it does not fit the model."""
        if not any(required.is_term for required in lacks):
            return None
        edits = [(*required.span, required.marked) for required in lacks if required.is_term]
        job = self._pipeline.rewritten(segment, edits, segment.required)
        return job if len(job.tokens) <= self._pipeline.max_source_length else None

    def _with_slots(self, segment: Segment, lacks: Sequence[Required]) -> Segment | None:
        """A job with slots for what is missing; None without slots."""
        free = [slot for slot in SLOTS if slot not in segment.slots] if self._pipeline.uses_slots else []
        wanted = [required for required in lacks if not required.slot]
        slots = dict(zip(wanted, free, strict=False))
        if not slots:
            return None
        required = tuple(replace(required, slot=slots.get(required, required.slot)) for required in segment.required)
        return self._pipeline.rewritten(segment, [(*old.span, slot) for old, slot in slots.items()], required)

    def _complete(
        self, segment: Segment, job: Segment, found: Sequence[Hypothesis], first: Sequence[int]
    ) -> list[list[int]]:
        """The outputs of a job for a segment, with text in place of slots that the segment does not have.

        Those that lack something are left out. A term that begins an output has a capital letter if the first output
        of the segment has one.
        """
        texts = self._target.decode_all([first, *(hypothesis.tokens for hypothesis in found)], marked=True)
        complete = []
        for marked in texts[1:]:
            for slot, required in job.slots.items():
                if slot not in segment.slots:
                    text = escape(required.text)
                    if required.is_term and marked.startswith(slot) and texts[0][:1].isupper():
                        text = text[0].upper() + text[1:]
                    marked = marked.replace(slot, text)
            if not missing(segment, marked, sound=True):
                complete.append(marked)
        return self._target.encode_all(complete, marked=True)

    def _scored(
        self, segments: Sequence[Segment], outputs: Sequence[tuple[Place, list[int]]], config: SearchConfig
    ) -> Searches[list[Hypothesis]]:
        """Outputs with the scores of searches whose prefixes they are."""
        jobs = [replace(segments[i], prefix=tokens) for (i, _), tokens in outputs]
        # No token may follow the prefix: an output is at most as long as its prefix or `max_length`.
        forced = replace(config, beam=1, nbest=1, sample=False, no_repeat=0, min_length=0, max_length=1)
        results = (yield jobs, forced) if jobs else []
        return [best for (best,) in results]


def repeated_tokens(segment: Segment, config: SearchConfig, limit: int) -> int:
    """Upper bound on the tokens of the searches that repairs of a segment may need, if its outputs have this limit."""
    if not segment.required:
        return 0
    beam = max(config.nbest, (config.beam + 1) // 2)
    # Its searches, and the scores of their outputs and of the one with insertions.
    return (_SEARCHES * beam + 2 * config.nbest) * (limit + segment.required_tokens)


class Gap(NamedTuple):
    """A range of an output's tokens in whose place a missing text belongs; it is empty if nothing is to be replaced."""

    start: int
    end: int
    required: Required


class Inserter:
    """Finds what outputs of one model lack, and inserts it where it belongs."""

    def __init__(self, reader: OutputReader, tokenizer: AnyTokenizer) -> None:
        self._reader, self._source, self._target = reader, tokenizer, tokenizer.target
        self._tags = _tags(tokenizer)

    def lacking(self, segments: Sequence[Segment], outputs: Outputs) -> dict[Place, list[Required]]:
        """What each output lacks, if it lacks something."""
        texts = self._target.decode_all([*outputs.values()], marked=True) if outputs else []
        found = {at: missing(segments[at[0]], marked) for at, marked in zip(outputs, texts, strict=True)}
        return {at: lacks for at, lacks in found.items() if lacks}

    def filled(
        self, segments: Sequence[Segment], outputs: Outputs, engine: Engine, only_replaced: Collection[Place]
    ) -> dict[Place, list[int]]:
        """The outputs with the missing text inserted, or in place of the words that translate a term.

        Outputs `only_replaced` are left out if there are no such words.
        """
        filled = dict(outputs)
        for passes in range(_PASSES):
            lacking = self.lacking(segments, filled)
            pairs = [(segments[at[0]].tokens, filled[at]) for at in lacking]
            reader = engine if isinstance(engine, OutputReader) else self._reader  # an engine is faster than a module
            weights = reader.attention_weights(pairs) if reader.aligns else [None] * len(pairs)
            for (at, lacks), weights_TS in zip(lacking.items(), weights, strict=True):
                segment, tokens = segments[at[0]], filled[at]
                gaps = [self._gap(segment, required, tokens, weights_TS, passes == 0) for required in lacks]
                if at in only_replaced and any(gap.start == gap.end for gap in gaps):
                    del filled[at]
                else:
                    filled[at] = self._with_gaps_filled(tokens, gaps)
        return filled

    def _with_gaps_filled(self, tokens: list[int], gaps: Sequence[Gap]) -> list[int]:
        result, end = tokens, len(tokens)
        for gap in sorted(gaps, key=lambda gap: gap.start, reverse=True):
            result = [*result[: gap.start], *self._encoded(gap, tokens), *result[min(gap.end, end) :]]
            end = gap.start
        return result

    def _encoded(self, gap: Gap, output: Sequence[int]) -> list[int]:
        """The tokens of a missing text; a term that begins an output has a capital letter if the output has one."""
        text = gap.required.marked
        if gap.required.is_term and gap.start == 0:
            (marked,) = self._target.decode_all([output], marked=True)
            text = text[0].upper() + text[1:] if marked[:1].isupper() else text
        return self._target.encode_all([text], marked=True)[0]

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


def _tags(tokenizer: AnyTokenizer) -> set[int]:
    """The ids of symbols that are not slots: tags of languages and the like, which have no translation."""
    return {number for symbol, number in tokenizer.symbol_ids.items() if symbol not in SLOTS}


def _inside_word(before: str, after: str) -> bool:
    """Whether two pieces belong to one word or one character, so that no text can be inserted between them."""
    return before == SPACE_MARK or before.endswith(ESCAPE) or bool(BYTE_TOKEN.fullmatch(after)) or has_spaces(after[0])
