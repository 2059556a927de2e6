"""A text on its way through the pipeline, and the contract of the pipeline's stages."""

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from string import digits
from typing import TYPE_CHECKING, Literal, NamedTuple

from transduce.files.scripts import has_spaces
from transduce.search.engine import Job
from transduce.tokenizers.symbols import SEPARATOR, escape, unescape
from transduce.translation.markup import Mark, TaggedText, tagged_text
from transduce.translation.rules import common

if TYPE_CHECKING:
    from transduce.translation.formality import Formality
    from transduce.translation.stages.glossary import Glossary
    from transduce.translation.stages.protect import Protection

Shape = Literal["capitals", "title"]
"""How a sentence is written if not with ordinary capitals."""
Edit = tuple[int, int, str]
"""Start and end of a range of characters, and the text that takes its place."""

_LONGEST_ENDING = 3
"""Letters that a forced term may be followed by in one word."""
LIST_NUMBER = re.compile(common()["layout"]["number"])
"""A mark of a numbered list: "1.", "IV.", "2)", "(3)", "(a)"."""


class Span(NamedTuple):
    """A range of characters."""

    start: int
    end: int


def merge(first: Sequence[Span], second: Sequence[Span]) -> list[Span]:
    """All of the first spans, and the second ones that overlap none of them; each list is in order."""
    merged, waiting = [], deque(first)
    for span in second:
        while waiting and waiting[0].end <= span.start:
            merged.append(waiting.popleft())
        overlaps = (waiting and waiting[0].start < span.end) or (merged and merged[-1].end > span.start)
        if not overlaps:
            merged.append(span)
    return [*merged, *waiting]


def join_neighbours(text: str, spans: Sequence[Span]) -> list[Span]:
    """The spans; those with no letter or digit between them, such as the numbers of a list, are one."""
    joined: list[Span] = []
    for span in spans:
        if joined and not any(map(str.isalnum, text[joined[-1].end : span.start])):
            joined[-1] = Span(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


@dataclass(frozen=True)
class Required:
    """Text that a translation must contain, and the place of its counterpart in the source."""

    text: str
    span: Span
    kind: Literal["protected", "checked", "term"] = "protected"
    """A protected span; a number or code that the model copies, as is checked; the translation of a term."""
    slot: str = ""
    """The symbol that takes its place, in the source and in the output, where it must occur exactly once."""

    @property
    def marked(self) -> str:
        """The text as the model generates it: the slot, or the text itself."""
        return self.slot or escape(self.text)

    @property
    def is_term(self) -> bool:
        """Whether it is the translation of a term, which may be capitalised differently and have an ending."""
        return self.kind == "term"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds the marked text as separate words; endings and other capitals are allowed in a term."""
        before = r"(?<!\w)" if has_spaces(self.marked[0]) else ""
        after = r"(?!\w)" if has_spaces(self.marked[-1]) and not self.is_term else ""
        if self.kind == "checked" and self.text.isdigit():
            after = r"(?!\d)"  # "the 1990s"
        return re.compile(before + re.escape(self.marked) + after, re.IGNORECASE if self.is_term else 0)

    @cached_property
    def longer_word(self) -> re.Pattern[str]:
        """Finds words that begin with the marked text and continue with more than an ending."""
        return re.compile(rf"{self.pattern.pattern}\w{{{_LONGEST_ENDING + 1}}}", self.pattern.flags)


@dataclass(frozen=True)
class Text:
    """A line or a sentence of it, as a stage of the pipeline leaves it."""

    characters: str
    origin: Sequence[int]
    """The place in the line, as it was written, of each character and of the end."""
    marks: tuple[Mark, ...] = ()
    """The tags that were taken out of it."""
    indentation: str = ""
    """White space before it, if it is a line or the first sentence of one."""
    separator: str = ""
    """White space and <br> tags between it and the next sentence, or white space after a line."""
    required: tuple[Required, ...] = ()
    """What its translation must contain; the spans are places in this text."""
    shape: Shape | None = None

    @classmethod
    def of(cls, line: str) -> "Text":
        before, after = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
        return cls(line, range(len(line) + 1), indentation=before, separator=after)

    def spans(self, *kinds: str) -> list[Span]:
        """The places of required text of these kinds."""
        return [required.span for required in self.required if required.kind in kinds]

    def place(self, origin: int) -> int:
        """The place in this text of a place in the line."""
        return bisect_left(self.origin, origin)

    def cut(self, start: int, end: int, separator: str, marks: Iterable[Mark]) -> "Text":
        """A range of the text with the tags that belong to it."""
        return Text(self.characters[start:end], self.origin[start : end + 1], tuple(marks), separator=separator)

    def edited(self, edits: Sequence[Edit]) -> "Text":
        """The text with some ranges replaced, which are in order; origins and required spans are carried along.

        The characters of a replacement have their origins spread evenly over the range that they replace.
        """
        if not edits:
            return self
        pieces, origin, at = list[str](), list[int](), 0
        for start, end, new in edits:
            pieces += [self.characters[at:start], new]
            origin += self.origin[at:start]
            first, length = self.origin[start], self.origin[end] - self.origin[start]
            origin += (first + place * length // len(new) for place in range(len(new)))
            at = end
        starts, ends = [start for start, _, _ in edits], [end for _, end, _ in edits]
        shifts = [0, *accumulate(len(new) - (end - start) for start, end, new in edits)]

        def moved(place: int, *, is_end: bool) -> int:
            before = bisect_right(ends, place)
            if before < len(starts) and starts[before] < place:  # inside a range that is replaced
                return starts[before] + shifts[before] + len(edits[before][2]) * is_end
            return place + shifts[before]

        required = tuple(
            replace(
                required, span=Span(moved(required.span.start, is_end=False), moved(required.span.end, is_end=True))
            )
            for required in self.required
        )
        characters = "".join([*pieces, self.characters[at:]])
        return replace(self, characters=characters, origin=[*origin, *self.origin[at:]], required=required)

    def substituted(self, pattern: re.Pattern[str], substitute: Callable[[re.Match[str]], str]) -> "Text":
        """The text with another text in place of each match of a pattern."""
        found = ((*match.span(), substitute(match)) for match in pattern.finditer(self.characters))
        return self.edited([edit for edit in found if self.characters[edit[0] : edit[1]] != edit[2]])


@dataclass
class Segment(Job):
    """A sentence, or a piece of a long one: a job for an engine, and what its translation must contain."""

    original: Text
    """The sentence as it is written, without its tags."""
    source: Text
    """The sentence as the model reads it."""
    target: str | None = None
    """The target language, if it is known."""
    required_tokens: int = 0
    """Number of tokens of all text that its translation must contain."""

    @property
    def text(self) -> str:
        return self.original.characters

    @property
    def separator(self) -> str:
        return self.original.separator

    @property
    def context_end(self) -> int:
        """The place in the source after the sentence before, if the model reads it; otherwise 0."""
        return self.source.characters.rfind(SEPARATOR) + 1

    @property
    def required(self) -> tuple[Required, ...]:
        return self.source.required

    @cached_property
    def slots(self) -> dict[str, Required]:
        """What each slot of the source stands for; the translation must contain every slot exactly once."""
        return {required.slot: required for required in self.required if required.slot}

    @cached_property
    def tagged(self) -> TaggedText | None:
        """The text with its inline tags, if it has any; the tokens are those of the text without them."""
        return tagged_text(self.text, self.original.marks, "\xa0") if self.original.marks else None

    @cached_property
    def is_untranslatable(self) -> bool:
        """Whether the text is copied: it numbers a list, or has only digits and marks besides spans in slots."""
        if not self.prefix and LIST_NUMBER.fullmatch(self.text):
            return True
        if self.prefix or any(required.is_term for required in self.required):
            return False
        words = unescape(self.source.characters[self.context_end :])
        return not any(letter.isalnum() and letter not in digits for letter in words)


@dataclass(frozen=True)
class Found:
    """An output of the search on its way back through the pipeline."""

    text: str
    """First the marked text that the search found, at last the translation of the segment."""
    tokens: list[str] = field(default_factory=list)
    """The pieces of the output; a slot is the text that it stands for."""
    source_spans: Sequence[Span] = ()
    """The place of each source token in the line, if the output is aligned."""
    alignment: list[int] | None = None
    """For each token, the index of the source token that it is aligned with."""
    kept: tuple[Span, ...] = ()
    """The places in the text of what was in slots."""


@dataclass(frozen=True)
class Context:
    """What a stage knows of a request."""

    source: str | None = None
    """The language of the source, if it is known."""
    target: str | None = None
    glossary: "Glossary | None" = None
    formality: "Formality | None" = None
    locale: bool = True
    """Whether numbers and times are written as the target language does."""
    protection: "Protection | None" = None
    has_prefix: bool = False
    """Whether the beginning of the output is given."""


class Stage:
    """A stage of the pipeline: what it does to a text before the search, and how it undoes it in the output."""

    name = ""

    def apply(self, text: Text, context: Context) -> Text:
        """The text that the next stage gets; the text itself if there is nothing to do."""
        return text

    @staticmethod
    def restore(output: Found, segment: Segment) -> Found:
        """The output that the stage before this one gets; all that this needs, the segment has."""
        return output
