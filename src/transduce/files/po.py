"""PO: the message catalogues of gettext."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

BAD_PO = "not a line of a PO file"

_KEYWORD = re.compile(r'\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*"(.*)"\s*')
_CONTINUATION = re.compile(r'\s*"(.*)"\s*')
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_QUOTED = {"\\": "\\\\", '"': '\\"', **{character: f"\\{letter}" for letter, character in _ESCAPES.items()}}


class PoString(NamedTuple):
    """A string of a message, with the numbers of its first line and of the line after its last."""

    text: str
    first: int
    end: int


@dataclass
class PoMessage:
    """A message; the header is the message with an empty msgid."""

    strings: dict[str, PoString] = field(default_factory=dict)
    """By keyword: msgctxt, msgid, msgid_plural, msgstr, msgstr[0] ..."""
    fuzzy: bool = False
    problem: str = ""
    line: int = 1
    """Number of the first line, from 1."""

    @property
    def id(self) -> str:
        """The source text; empty for the header."""
        return self.strings["msgid"].text if "msgid" in self.strings else ""


def read_messages(lines: Iterable[str | None]) -> Iterator[PoMessage]:
    """The messages of a PO file without obsolete ones; None stands for a line that cannot be read."""
    message, fuzzy, last = PoMessage(), False, ""
    for number, line in enumerate(lines, start=1):
        if line is None or not line.lstrip().startswith(("msg", '"')):
            if line is None:
                message.problem = BAD_PO
            elif line.startswith("#,"):
                fuzzy = fuzzy or "fuzzy" in line.replace(",", " ").split()
            elif line.strip() and not line.startswith("#"):
                message.problem = BAD_PO
            last = ""
            continue
        keyword, continuation = _KEYWORD.fullmatch(line), _CONTINUATION.fullmatch(line)
        if keyword:
            last = keyword[1]
            starts_message = last == "msgctxt" or (last == "msgid" and "msgid" in message.strings)
            if starts_message and message.strings:
                yield message
                message = PoMessage()
            if not message.strings:
                message.fuzzy, message.line, fuzzy = fuzzy, number, False
            message.strings[last] = PoString(_unquote(keyword[2]), number, number + 1)
        elif continuation and last:
            before = message.strings[last]
            message.strings[last] = PoString(before.text + _unquote(continuation[1]), before.first, number + 1)
        else:
            message.problem = BAD_PO
    if message.strings or message.problem:
        yield message


def quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(character, character) for character in text) + '"'


def _unquote(text: str) -> str:
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, code)
