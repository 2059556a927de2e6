"""Placeholders of messages of programs, such as %s, which must stay in their order unless they have numbers."""

import re
from collections.abc import Iterable, Mapping
from itertools import count
from typing import NamedTuple


class _Style(NamedTuple):
    """How a format string writes placeholders without numbers, and with the number of an argument."""

    placeholder: re.Pattern[str]
    """Matches a placeholder without a number; the group `rest` is what follows the number."""
    token: str
    """A placeholder with a number as the translator reads it."""
    tokens: re.Pattern[str]
    """Matches these."""
    numbered: str = ""
    """A placeholder with a number; empty if the format has none."""
    star: str = ""
    """The same of a width or precision that is an argument."""
    first: int = 1
    """Number of the first argument."""


_PERCENT = re.compile(
    r"%%|%(?P<rest>[-+#0'I]*(?:\*|\d+)?(?:\.(?:\*|\d*))?(?:hh|ll|[hlLqjzt])?(?:[a-ln-zA-Z@]|<PRI\w+>))"
)
"""Without the flag " ", because "50% done" has no placeholder, and without %m, which has no argument."""
_BRACES = re.compile(r"\{\{|\}\}|\{(?P<rest>(?:[.\[!:][^{}]*)?)\}")

_TOKEN = "%{number}$s", re.compile(r"%\d+\$s")
_PRINTF = _Style(_PERCENT, *_TOKEN, "%{number}${rest}", "*{number}$")
_PASCAL = _Style(_PERCENT, *_TOKEN, "%{number}:{rest}", first=0)
_ORDERED = _Style(_PERCENT, *_TOKEN)
_PLACES = _Style(_BRACES, "{{{number}}}", re.compile(r"\{\d+\}"), "{{{number}{rest}}}", first=0)
_PRINTF_NAMES = "awk boost c d elisp gcc-internal gfc-internal java-printf javascript librep objc perl php ruby tcl"
_STYLES = {
    "c++-format": _PLACES, "lua-format": _ORDERED, "object-pascal-format": _PASCAL, "python-brace-format": _PLACES,
    "python-format": _ORDERED, "rust-format": _PLACES,
}  # fmt: skip
_STYLES |= dict.fromkeys(map("{}-format".format, _PRINTF_NAMES.split()), _PRINTF)
"""By the flag of a message. Formats of which every placeholder has a number or a name need no row."""


class _Placeholder(NamedTuple):
    source: str
    """The placeholder as it is in the message."""
    numbered: str
    """The same with the number of its argument; empty if its format has no numbers."""


class FormatText(NamedTuple):
    """A message of which the translator reads placeholders with numbers, so that equal ones are not confused."""

    text: str
    placeholders: Mapping[str, _Placeholder]
    """The placeholders by what the translator reads, in the order of the message."""
    tokens: re.Pattern[str] = _PERCENT
    """Matches what the translator reads."""

    def restore(self, translation: str) -> str | None:
        """The translation with the placeholders of the message, with numbers if their order differs.

        None if they would need numbers, which the format does not have, or if they do not occur once each.
        """
        if not self.placeholders:
            return translation
        found = self.tokens.findall(translation)
        if found == [*self.placeholders]:
            return self.tokens.sub(lambda match: self.placeholders[match[0]].source, translation)
        if sorted(found) != sorted(self.placeholders) or not all(self.placeholders[token].numbered for token in found):
            return None
        return self.tokens.sub(lambda match: self.placeholders[match[0]].numbered, translation)


def number_placeholders(text: str, flags: Iterable[str]) -> FormatText:
    """Number the placeholders of a message with these flags, if it has several without numbers."""
    style = next((_STYLES[flag] for flag in flags if flag in _STYLES), None)
    matches = [match for match in style.placeholder.finditer(text) if match["rest"] is not None] if style else []
    if not style or len(matches) < 2:
        return FormatText(text, {})
    placeholders, parts, at = dict[str, _Placeholder](), list[str](), 0
    arguments = count(style.first)
    for index, match in enumerate(matches, start=1):
        token = style.token.format(number=index)
        placeholders[token] = _Placeholder(match[0], _numbered(style, match["rest"], arguments))
        parts += [text[at : match.start()], token]
        at = match.end()
    return FormatText("".join([*parts, text[at:]]), placeholders, style.tokens)


def _numbered(style: _Style, rest: str, arguments: "count[int]") -> str:
    """A placeholder with the numbers of the next arguments: those of its width and precision precede its value's."""
    if style.star:
        rest = re.sub(r"\*", lambda _: style.star.format(number=next(arguments)), rest)
    elif "*" in rest and style.placeholder is _PERCENT:
        return ""
    return style.numbered.format(number=next(arguments), rest=rest)
