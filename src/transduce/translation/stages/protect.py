"""Protected spans: ranges of a text that a translation must contain unchanged, such as addresses and placeholders.

A model that was trained with augment.spans sees a slot, one of ten reserved symbols, instead of each span.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from transduce.errors import ConfigError
from transduce.files.languages import base_language
from transduce.files.texts import require_list
from transduce.tokenizers.symbols import SLOTS
from transduce.translation.locale import localized, with_clear_mornings, with_complete_times, with_english_times
from transduce.translation.rules import common, pattern
from transduce.translation.stages.normalize import Readable
from transduce.translation.text import Context, Required, Span, Stage, Text, join_neighbours, merge

_COPIED = re.compile("|".join(pattern(common()["copy"][name]) for name in ("integer", "code")))
_SHARED_NAME = re.compile(r"(?<![\w@.-])[^\W_][\w-]{2,}(?![\w@-]|\.\w)")
_WORTH_SEARCHING = re.compile(
    r"[\d@/\\{}$%<>`&#_=^\u231a-\u27bf\u2b50\u2b55\U0001f000-\U0001faff]|--|\w[.+]\w|"
    rf"{pattern('(?&keys)')}-|:[\w+-]|[:;=][()|]"
)
_CLOSING = ".,;:!?'\"»”’"
_OPENING_OF = {")": "(", "]": "[", "}": "{"}


class Protect(Stage):
    """Finds the protected spans of a sentence; if there are slots, also what cannot be read."""

    name = "protect"

    def __init__(self, readable: Readable, uses_slots: bool, sources: Mapping[str | None, set[str]]) -> None:
        """`sources`: the languages that the source of a translation to a language may have."""
        self._readable, self._uses_slots, self._sources = readable, uses_slots, sources

    def spans(self, text: str, context: Context) -> list[Span]:
        protection = context.protection
        if not protection:
            return []
        spans = protection.spans(text, numbers=self._uses_slots)
        if not self._uses_slots:
            return spans
        return merge(spans, self._readable.unreadable(text))

    def apply(self, text: Text, context: Context) -> Text:
        """The text with its protected spans; if there are too many, neighbours are joined.

        Numbers and times are written as the target language does, unless the request leaves them as they are.
        """
        known = {context.source} if context.source else self._sources.get(context.target, set())
        sources = known if context.locale else set()
        if self._uses_slots and known == {"en"}:
            text = with_clear_mornings(with_complete_times(text) if context.locale else text)
        elif self._uses_slots and base_language(context.target) == "en":
            text = with_english_times(text) if sources & {"de", "fr"} else text
        characters = text.characters
        spans = self.spans(characters, context)
        if self._uses_slots and len(spans) > len(SLOTS):
            spans = join_neighbours(characters, spans)
        if not spans:
            return text
        required = (
            Required(localized(characters[slice(*span)], characters[: span.start], sources, context.target), span)
            for span in spans
        )
        return replace(text, required=(*text.required, *required))


class Protection:
    """Finds the protected spans of a text: those of the built-in kinds, and those of a user's regular expressions."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        require_list(patterns, "patterns of protected text")
        self.patterns = tuple(patterns)
        self._user = None
        if patterns:
            try:
                for expression in patterns:
                    re.compile(expression)  # one by one, so that an error has its position in the expression
                self._user = re.compile("|".join(f"(?:{expression})" for expression in patterns))
            except re.error as error:
                raise ConfigError(f"the pattern of protected text is not a regular expression: {error}") from None

    def spans(self, text: str, *, numbers: bool = True) -> list[Span]:
        """The protected spans, in order and without overlap.

        With `numbers`, formulas, sizes and numbers with separators or units are among them.
        """
        spans = [Span(*match.span()) for match in self._user.finditer(text) if match[0].strip()] if self._user else []
        if not _WORTH_SEARCHING.search(text):
            return spans
        return merge(spans, [_trimmed(text, *match.span()) for match in _kinds(numbers).finditer(text)])

    def copied(self, text: str, spans: Sequence[Span]) -> list[Span]:
        """Integers of two to four digits and codes ("F5") outside the spans: a model copies them, as is checked."""
        taken = {*spans}
        merged = merge(spans, [Span(*match.span()) for match in _COPIED.finditer(text)])
        return [span for span in merged if span not in taken]


@cache
def _kinds(numbers: bool) -> re.Pattern[str]:
    """A pattern of all kinds, with or without those that need slots."""
    rules = (rule for rule in common()["protect"] if numbers or "numbers" not in rule)
    return re.compile("|".join(pattern(rule["pattern"]) for rule in rules))


def occurs_once(part: str, text: str) -> bool:
    """Whether a text contains a part exactly once, and there as a separate word."""
    start = text.find(part)
    end = start + len(part)
    return text.count(part) == 1 and not text[start - 1 : start].isalnum() and not text[end : end + 1].isalnum()


def _trimmed(text: str, start: int, end: int) -> Span:
    """Without the punctuation after an address, which belongs to the sentence."""
    found = text[start:end]
    if found.startswith(("http", "ftp", "www.")) or "/" in found:
        unopened = {close: found.count(close) - found.count(opening) for close, opening in _OPENING_OF.items()}
        while end > start + 1 and ((last := text[end - 1]) in _CLOSING or unopened.get(last, 0) > 0):
            unopened[last] = unopened.get(last, 0) - 1
            end -= 1
    return Span(start, end)


def shared_parts(source: str, target: str) -> list[str]:
    """Protected spans and names, none of which overlap, that occur exactly once on both sides as separate words.

    Augmentation (translation/augment.py) replaces them by slots.
    """
    parts = [source[start:end] for start, end in Protection().spans(source)]
    protected = " ".join(parts)
    parts += [name for name in _SHARED_NAME.findall(source) if name not in protected]
    return [part for part in parts if occurs_once(part, source) and occurs_once(part, target)]
