"""Splits a text into the parts that a model translates, and notes what their translations must contain."""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from transduce.errors import DataError
from transduce.files.languages import Direction
from transduce.files.texts import require_text
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import SLOTS, escape, tag_prefix
from transduce.translation.chunks import split_long
from transduce.translation.expansions import ABBREVIATION, Expansions
from transduce.translation.glossary import Glossary
from transduce.translation.layout import split_layout
from transduce.translation.line_tags import LineTag, tags_by_sentence, take_tags, with_tags
from transduce.translation.part import Part, Required
from transduce.translation.protect import Protection, Span, join_neighbours, mask, merge
from transduce.translation.readable_text import UNUSUAL_FORM, ReadableText
from transduce.translation.sentences import Sentence, split_sentences
from transduce.translation.times import in_24_hours
from transduce.translation.truecase import Shape, shape_of, truecase

_MAY_BE_COPIED = re.compile(r"\d|[a-z][A-Z]")
"""Finds numbers, codes and names such as "camelCase"."""


@dataclass(frozen=True)
class Splitter:
    """How a model's texts are split into parts."""

    tokenizer: AnyTokenizer
    max_source_length: int
    """Maximum number of source tokens of a part."""
    by_sentence: bool = False
    """Whether every sentence is a part; otherwise a text is one part if it is not too long."""
    directions: Sequence[Direction] = ()
    """Source and target language of each direction of the model; empty if they are not known."""
    tagged: bool = False
    """Whether a tag of the target language begins every source, as in multilingual models."""
    protection: Protection | None = None
    uses_slots: bool = False
    """Whether the model was trained with slots for protected spans."""
    aligns: bool = False
    """Whether outputs can be aligned, so that pairs of tags are taken out and put back."""
    truecases: bool = False
    """Whether sentences in capitals or title case get ordinary capitals."""
    longest_prefix: int | None = None
    """Maximum number of tokens of an output's prefix; None if the model has no limit."""

    def numbered_parts(
        self,
        lines: Sequence[tuple[int, tuple[str, str, str | None]]],
        glossary: Glossary | None = None,
        *,
        refuse_long: bool = False,
    ) -> list[list[Part]]:
        """The parts of lines, each with its number, for error messages, its text, prefix and target language."""
        for number, (text, prefix, _) in lines:
            require_text(text, f"line {number}")
            require_text(prefix, f"the prefix of line {number}")
        prefixes = [self._encode_prefix(prefix, number) for number, (_, prefix, _) in lines]

        def refusal(index: int, tokens: int) -> DataError:
            return DataError(
                f"line {lines[index][0]} has {tokens:,} tokens, more than the {self.max_source_length} this model "
                "takes at once; shorten it or split it with long=split"
            )

        texts, targets = [text for _, (text, _, _) in lines], [target for _, (_, _, target) in lines]
        return self.parts(texts, prefixes, targets, glossary, refusal if refuse_long else None)

    def whole(self, text: str, target: str | None) -> Part:
        """A text as one part, even if it has several sentences; a DataError if it is empty or does not fit."""
        drafts = replace(self, by_sentence=False)._drafts(text, target, None, takes_tags=False)
        if not drafts:
            raise DataError("the text is empty")
        (tokens,) = self.tokenizer.encode_all([drafts[0].marked], marked=True)
        if len(tokens) > self.max_source_length:
            raise DataError(
                f"the text has {len(tokens):,} tokens; the model takes {self.max_source_length}: shorten it"
            )
        return _with_space_around([drafts[0].part(tokens, (), self.tokenizer)], text)[0]

    def parts(
        self,
        texts: Sequence[str],
        prefixes: Sequence[Sequence[int]],
        targets: Sequence[str | None],
        glossary: Glossary | None = None,
        refuse_long: Callable[[int, int], DataError] | None = None,
    ) -> list[list[Part]]:
        """The parts of each text; the output of every sentence starts with the text's prefix.

        `refuse_long(index, tokens)` makes the error for a text that is too long; without it, the text is split.
        """
        drafts = [
            self._drafts(text, target, glossary, takes_tags=not prefix)
            for text, target, prefix in zip(texts, targets, prefixes, strict=True)
        ]
        tokens = iter(self.tokenizer.encode_all([one.marked for some in drafts for one in some], -1, marked=True))
        results: list[list[Part]] = []
        for index, (some, prefix) in enumerate(zip(drafts, prefixes, strict=True)):
            parts: list[Part] = []
            for draft in some:
                part = draft.part(next(tokens), prefix, self.tokenizer)
                if self._fits(draft, part.tokens):
                    parts.append(part)
                elif refuse_long and len(part.tokens) > self.max_source_length:
                    raise refuse_long(index, len(part.tokens))
                else:
                    parts += self._pieces(draft, prefix, glossary)
            results.append(_with_space_around(parts, texts[index]))
        return results

    def source_language(self, target: str | None) -> str | None:
        """The language of the source, if the directions leave no choice."""
        sources = self._sources(target)
        return sources.pop() if len(sources) == 1 else None

    def _sources(self, target: str | None) -> set[str]:
        """The languages that the source of a translation may have."""
        return {source for source, other in self.directions if target in (None, other)}

    def _encode_prefix(self, prefix: str, number: int) -> list[int]:
        tokens = self.tokenizer.target.encode(prefix) if prefix else []
        if self.longest_prefix is not None and len(tokens) > self.longest_prefix:
            raise DataError(
                f"line {number} has a prefix of {len(tokens):,} tokens, more than the {self.longest_prefix} this model "
                "can generate; shorten it"
            )
        return tokens

    def _drafts(self, line: str, target: str | None, glossary: Glossary | None, *, takes_tags: bool) -> list["_Draft"]:
        """The sentences of a line; an output with a given prefix keeps the tags in it."""
        text, tags = take_tags(line) if takes_tags and self.aligns and self.protection else (line, [])
        sentences = self._sentences(text, target, glossary)
        by_sentence = tags_by_sentence(text, tags, sentences)
        return [
            self._draft(sentence, target, glossary, own) for sentence, own in zip(sentences, by_sentence, strict=True)
        ]

    def _sentences(self, text: str, target: str | None, glossary: Glossary | None) -> list[Sentence]:
        """The sentences of a text; those that share a protected span or a term, such as "Yahoo! Mail", are one."""
        if not text.strip():
            return []
        if not self.by_sentence:
            return [Sentence(text, "")]
        language = self.source_language(target)
        sentences = list(split_layout(split_sentences(text, language), language))
        if len(sentences) == 1 or not (self.protection or glossary):
            return sentences
        text = text.strip()
        spans = self._spans(text)
        held = sorted([*spans, *(span for span, _ in glossary.matches(text, spans))] if glossary else spans)
        joined, end, waiting = [sentences[0]], len(sentences[0].text), deque(held)
        for sentence in sentences[1:]:
            start = end + len(joined[-1].separator)
            while waiting and waiting[0].end <= start:
                waiting.popleft()
            end = start + len(sentence.text)
            if waiting and waiting[0].start < start:
                joined[-1] = Sentence("".join([*joined[-1], sentence.text]), sentence.separator)
            else:
                joined.append(sentence)
        return joined

    def _spans(self, text: str) -> list[Span]:
        """The protected spans of a text; if there are slots, also lists and what the model cannot read."""
        if not self.protection:
            return []
        spans = self.protection.spans(text, numbers=self.uses_slots)
        if not self.uses_slots:
            return spans
        return merge(merge(spans, self.protection.integer_lists(text)), self._readable.unreadable(text))

    @cached_property
    def _readable(self) -> ReadableText:
        return ReadableText(self._vocabulary)

    @cached_property
    def _expansions(self) -> dict[str | None, Expansions]:
        """Those of abbreviations in the source, for each target language."""
        pieces, targets = {*self._vocabulary}, {None, *(target for _, target in self.directions)}
        return {target: Expansions(sorted(self._sources(target)), pieces) for target in targets}

    @property
    def _vocabulary(self) -> list[str]:
        return self.tokenizer.pieces(range(self.tokenizer.vocab_size))

    def _pieces(self, long: "_Draft", prefix: Sequence[int], glossary: Glossary | None) -> list[Part]:
        """The parts of a sentence that does not fit; the output of the first starts with the prefix."""

        def fits(text: str) -> bool:
            draft = self._draft(Sentence(text, ""), long.target, None)
            return self._fits(draft, self.tokenizer.encode_all([draft.marked], marked=True)[0])

        pieces = split_long(long.sentence.text, fits, self.source_language(long.target))
        pieces[-1] = pieces[-1]._replace(separator=long.sentence.separator)
        by_piece = tags_by_sentence(long.sentence.text, long.tags, pieces)
        drafts = [self._draft(piece, long.target, glossary, tags) for piece, tags in zip(pieces, by_piece, strict=True)]
        tokens = self.tokenizer.encode_all([draft.marked for draft in drafts], marked=True)
        return [draft.part(tokens[n], () if n else prefix, self.tokenizer) for n, draft in enumerate(drafts)]

    def _fits(self, draft: "_Draft", tokens: Sequence[int]) -> bool:
        """Whether a part has at most as many tokens as the model takes, and a slot for each of its spans."""
        has_slots = draft.spans <= len(SLOTS) or not self.uses_slots
        return has_slots and len(tokens) <= self.max_source_length

    def _draft(
        self, sentence: Sentence, target: str | None, glossary: Glossary | None, tags: Sequence[LineTag] = ()
    ) -> "_Draft":
        text, protection, tag = sentence.text, self.protection, tag_prefix(target) if self.tagged else ""
        spans, slots = self._spans(text), len(SLOTS) if self.uses_slots else 0
        if len(spans) > slots > 0:
            spans = join_neighbours(text, spans)
        terms = glossary.matches(text, spans) if glossary else []
        copies = len(spans) > slots
        shape = shape_of(text, spans) if self.truecases and not copies else None
        if shape:
            kept = merge(
                merge(spans, self._readable.initialisms(text)), protection.copied(text, spans) if protection else []
            )
            text = truecase(text, kept, self.tokenizer.encode)
        if not (spans or terms or (protection and self.uses_slots and _MAY_BE_COPIED.search(text))):
            return _Draft(sentence, target, tag + self._usual_form(escape(text), target), (), shape, tags, 0)
        taken = [span for span, _ in terms]
        spans = merge(taken, spans)
        others = protection.copied(text, spans) if protection and self.uses_slots else []
        copied = [span for span in spans if span not in {*taken}]
        in_slots = copied[:slots]

        def in_slots_before(place: int) -> list[Span]:
            return [slot for slot in in_slots if slot.end <= place]

        wanted = [(span, in_24_hours(text[span.start : span.end], target), False) for span in [*copied, *others]]
        wanted += [(span, translation, True) for span, translation in terms]
        required = tuple(
            Required(
                needed,
                SLOTS[index] if index < len(in_slots) else escape(needed),
                (tag + self._usual_form(mask(text[: span.start], in_slots_before(span.start)), target)).rstrip(),
                tag + self._usual_form(mask(text[: span.end], in_slots_before(span.end)), target),
                is_term,
            )
            for index, (span, needed, is_term) in enumerate(wanted)
        )
        return _Draft(
            sentence, target, tag + self._usual_form(mask(text, in_slots), target), required, shape, tags, len(copied)
        )

    def _usual_form(self, marked: str, target: str | None) -> str:
        """The text as the model reads it."""
        if UNUSUAL_FORM.search(marked):
            marked = self._readable.usual_form(marked)
        return self._expansions[target].expand(marked) if ABBREVIATION.search(marked) else marked


def _with_space_around(parts: list[Part], text: str) -> list[Part]:
    """The parts of a text with the white space that it begins and ends with."""
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    if parts and before and not parts[0].prefix:
        parts[0] = replace(parts[0], indentation=before)
    if parts and after:
        parts[-1] = replace(parts[-1], separator=after)
    return parts


@dataclass(frozen=True)
class _Draft:
    """A part before it is encoded."""

    sentence: Sentence
    target: str | None
    marked: str
    required: tuple[Required, ...]
    shape: Shape | None
    tags: Sequence[LineTag]
    spans: int
    """Number of protected spans."""

    def part(self, tokens: list[int], prefix: Sequence[int], tokenizer: AnyTokenizer) -> Part:
        sentence, required = self.sentence, [one.marked for one in self.required]
        terms = (
            {token for one in tokenizer.target.encode_all(required, marked=True) for token in one} if required else ()
        )
        return Part(
            tokens, list(prefix), sentence.text, sentence.separator, self.target, self.required, self.shape,
            with_tags(sentence.text, self.tags) if self.tags else None, terms=tuple(sorted(terms)),
        )  # fmt: skip
