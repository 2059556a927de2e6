"""The front matter of Markdown files: title and descriptions.

A value beside its key, which may continue in indented lines, is plain text; a text in the lines below its key is
Markdown, as the rest of the file.
"""

import re
from collections.abc import Iterator
from functools import partial

from transduce.documents.document import PlacedUnit, Unit, has_words, tagged_text

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_KEY = r"^(?:title|subtitle|description|summary|excerpt)[ \t]*"
_ENTRY = re.compile(
    rf"{_KEY}(?::[ \t]+|=[ \t]*(?=[\"']))"
    r"(?P<value>(?P<quote>[\"'])(?P<quoted>[^\"'\\\n]*(?:(?!(?P=quote))[\"'][^\"'\\\n]*)*)(?P=quote)"
    r"|\w[^\n]*?(?:\n[ \t]+\S[^\n]*?)*)"
    r"[ \t]*\r?$(?!\n[ \t]+\S)",
    re.MULTILINE,
)
"""An entry with a value beside its key, without escapes; if it is in quotes, in one line."""
_BLOCK_ENTRY = re.compile(
    rf"{_KEY}:[ \t]+[|>][-+\d]*[ \t]*(?:#[^\n]*)?\r?\n(?P<lines>(?:[ \t]*\r?\n|[ ]+\S[^\n]*\n)+)", re.MULTILINE
)
"""An entry of which the value is the indented lines below it, literal (after "|") or folded (">")."""
_INDENTATION = re.compile(r"^( *)\S", re.MULTILINE)
_NOT_PLAIN = re.compile(r"\A\W|:(?:\s|\Z)|\s#")


def front_matter_units(source: str) -> Iterator[PlacedUnit]:
    """The values beside keys in the front matter of a file, with their places."""
    front = _FRONT_MATTER.match(source)
    for entry in _ENTRY.finditer(front[0]) if front else ():
        quote = entry["quote"] or ""
        tagged = tagged_text(entry["quoted"] if quote else " ".join(entry["value"].split()))
        if has_words(tagged) and (quote or not _NOT_PLAIN.search(tagged.text)):
            yield *entry.span("value"), Unit([tagged], str, partial(_written_entry, quote))


def without_front_matter(source: str) -> str:
    """The Markdown of a file, line by line: the front matter is empty but for texts in several lines.

    These are without their indentation, which Markdown may read as that of code.
    """
    front = _FRONT_MATTER.match(source)
    if not front:
        return source
    parts, at = list[str](), 0
    for entry in _BLOCK_ENTRY.finditer(front[0]):
        parts += [_empty(front[0][at : entry.start("lines")]), _without_indentation(entry["lines"])]
        at = entry.end("lines")
    return "".join([*parts, _empty(front[0][at:]), source[front.end() :]])


def _empty(source: str) -> str:
    """The lines of a source without their text."""
    return re.sub(r"[^\n]", "", source)


def _without_indentation(lines: str) -> str:
    """The lines without the indentation that the first one with text has."""
    first = _INDENTATION.search(lines)
    return re.sub(rf"^{first[1]}", "", lines, flags=re.MULTILINE) if first else lines


def _written_entry(quote: str, outputs: list[str]) -> str:
    """The value of an entry, in quotes if it needs them."""
    (text,) = outputs
    if quote == "'" and "'" not in text:
        return f"'{text}'"
    if not quote and not _NOT_PLAIN.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
