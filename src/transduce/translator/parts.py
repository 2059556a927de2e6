"""Splits a text into the parts that a model translates, and notes what their translations must contain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transduce.engines.engine import Job
from transduce.errors import DataError
from transduce.text.chunks import split_long
from transduce.text.glossary import Glossary
from transduce.text.languages import Direction, tag_prefix
from transduce.text.protect import Protection, mask
from transduce.text.sentences import Sentence, split_sentences
from transduce.text.symbols import SLOTS, escape
from transduce.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Required:
    """Text that the translation of a part must contain."""

    text: str
    marked: str
    """The text as the model generates it: a slot, or the text itself."""
    before: str
    """The marked source before the text that corresponds to it."""

    @property
    def is_slot(self) -> bool:
        """Whether a slot stands for the text; it must then occur exactly once."""
        return self.marked in SLOTS


@dataclass(frozen=True)
class Part(Job):
    """A sentence, or a piece of a long one, as a job for an engine."""

    text: str
    separator: str
    """White space between this part and the next one in the source."""
    target: str | None = None
    """The target language, if it is known."""
    required: tuple[Required, ...] = ()

    @property
    def is_untranslatable(self) -> bool:
        """Whether the text has nothing but protected spans and punctuation; it is then its own translation."""
        rest = self.text
        for one in self.required if all(one.is_slot for one in self.required) else ():
            rest = rest.replace(one.text, "", 1)
        return not any(map(str.isalnum, rest))


@dataclass(frozen=True)
class Splitter:
    """How a model's texts are split into parts."""

    tokenizer: Tokenizer
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
            [self._draft(sentence, target, glossary) for sentence in self._sentences(text, target)]
            for text, target in zip(texts, targets, strict=True)
        ]
        tokens = iter(self.tokenizer.encode_all([one.marked for some in drafts for one in some], -1, marked=True))
        results: list[list[Part]] = []
        for index, (some, prefix) in enumerate(zip(drafts, prefixes, strict=True)):
            parts: list[Part] = []
            for draft in some:
                part = draft.part(next(tokens), prefix)
                if len(part.tokens) <= self.max_source_length:
                    parts.append(part)
                elif refuse_long:
                    raise refuse_long(index, len(part.tokens))
                else:
                    parts += self._pieces(draft, prefix, glossary)
            results.append(parts)
        return results

    def source_language(self, target: str | None) -> str | None:
        """The language of the source, if the directions leave no choice."""
        sources = {one for one, other in self.directions if target in (None, other)}
        return sources.pop() if len(sources) == 1 else None

    def _sentences(self, text: str, target: str | None) -> list[Sentence]:
        if not text.strip():
            return []
        return split_sentences(text, self.source_language(target)) if self.by_sentence else [Sentence(text, "")]

    def _pieces(self, long: "_Draft", prefix: Sequence[int], glossary: Glossary | None) -> list[Part]:
        """The parts of a sentence that is too long; the output of the first starts with the prefix."""

        def fits(text: str) -> bool:
            draft = self._draft(Sentence(text, ""), long.target, None)
            return len(self.tokenizer.encode_all([draft.marked], marked=True)[0]) <= self.max_source_length

        pieces = split_long(long.sentence.text, fits, self.source_language(long.target))
        pieces[-1] = pieces[-1]._replace(separator=long.sentence.separator)
        drafts = [self._draft(piece, long.target, glossary) for piece in pieces]
        tokens = self.tokenizer.encode_all([draft.marked for draft in drafts], marked=True)
        return [draft.part(tokens[n], () if n else prefix) for n, draft in enumerate(drafts)]

    def _draft(self, sentence: Sentence, target: str | None, glossary: Glossary | None) -> "_Draft":
        text, protection, tag = sentence.text, self.protection, tag_prefix(target) if self.tagged else ""
        spans = protection.spans(text, numbers=self.uses_slots) if protection else []
        in_slots = spans[: len(SLOTS)] if self.uses_slots else []
        wanted = [(span, text[span.start : span.end]) for span in spans]
        if protection and self.uses_slots:
            wanted += [(span, text[span.start : span.end]) for span in protection.integers(text, spans)]
        if glossary:
            wanted += glossary.matches(text, spans)
        required = tuple(
            Required(
                needed,
                SLOTS[index] if index < len(in_slots) else escape(needed),
                tag + mask(text[: span.start].rstrip(), [slot for slot in in_slots if slot.end <= span.start]),
            )
            for index, (span, needed) in enumerate(wanted)
        )
        return _Draft(sentence, target, tag + mask(text, in_slots), required)


@dataclass(frozen=True)
class _Draft:
    """A part before it is encoded."""

    sentence: Sentence
    target: str | None
    marked: str
    required: tuple[Required, ...]

    def part(self, tokens: list[int], prefix: Sequence[int]) -> Part:
        return Part(tokens, list(prefix), self.sentence.text, self.sentence.separator, self.target, self.required)
