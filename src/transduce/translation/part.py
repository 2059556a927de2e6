"""A part of a text, which is a job for an engine, and what its translation must contain."""

import re
from dataclasses import dataclass
from functools import cached_property

from transduce.files.scripts import has_spaces
from transduce.search.engine import Job
from transduce.tokenizers.symbols import SLOTS
from transduce.translation.inline_tags import TaggedText
from transduce.translation.layout import LIST_NUMBER
from transduce.translation.truecase import Shape

_LONGEST_ENDING = 3
"""Letters that a forced term may be followed by in one word."""


@dataclass(frozen=True)
class Required:
    """Text that the translation of a part must contain."""

    text: str
    marked: str
    """The text as the model generates it: a slot, or the text itself."""
    before: str
    """The marked source before the text that corresponds to it."""
    through: str = ""
    """The marked source up to the end of that text."""
    is_term: bool = False
    """Whether it is the translation of a term, which may be capitalised differently and have an ending."""

    @property
    def is_slot(self) -> bool:
        """Whether a slot stands for the text; it must then occur exactly once."""
        return self.marked in SLOTS

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds the marked text as separate words; endings and other capitals are allowed in a term."""
        before = r"(?<!\w)" if has_spaces(self.marked[0]) else ""
        after = r"(?!\w)" if has_spaces(self.marked[-1]) and not self.is_term else ""
        return re.compile(before + re.escape(self.marked) + after, re.IGNORECASE if self.is_term else 0)

    @cached_property
    def longer_word(self) -> re.Pattern[str]:
        """Finds words that begin with the marked text and continue with more than an ending."""
        return re.compile(rf"{self.pattern.pattern}\w{{{_LONGEST_ENDING + 1}}}", self.pattern.flags)


@dataclass(frozen=True)
class Part(Job):
    """A sentence, or a piece of a long one, as a job for an engine."""

    text: str
    separator: str
    """White space after this part in the source."""
    target: str | None = None
    """The target language, if it is known."""
    required: tuple[Required, ...] = ()
    shape: Shape | None = None
    """How the sentence was written, if the model gets it with other capitals (truecasing)."""
    tagged: TaggedText | None = None
    """The text with its inline tags, if it has any; the tokens are those of the text without them."""
    indentation: str = ""
    """White space before the first part of a text, unless its output has a prefix."""

    @cached_property
    def is_untranslatable(self) -> bool:
        """Whether the text is copied: it numbers a list, or has only spans in slots and neither letters nor digits."""
        if not self.prefix and LIST_NUMBER.fullmatch(self.text):
            return True
        if self.prefix or not all(one.is_slot for one in self.required):
            return False
        rest = self.text
        for one in self.required:
            rest = rest.replace(one.text, "", 1)
        return not any(map(str.isalnum, rest))
