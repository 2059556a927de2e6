"""The front matter of a Markdown file, in YAML or TOML: its title, description and the like are texts."""

import re
from collections.abc import Iterator
from functools import partial

from transduce.documents.document import Unit, has_words, tagged_text, unchanged

FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(
    r"^(?:title|subtitle|description|summary|excerpt)[ \t]*(?::[ \t]+|=[ \t]*(?=[\"']))"
    r"(?P<value>(?P<quote>[\"'])(?P<quoted>[^\"'\\\n]*(?:(?!(?P=quote))[\"'][^\"'\\\n]*)*)(?P=quote)|\w[^\n]*?)"
    r"[ \t]*\r?$(?!\n[ \t]+\S)",
    re.MULTILINE,
)
"""An entry of which the value is in one line, without escapes."""
_NOT_PLAIN = re.compile(r"\A\W|:(?:\s|\Z)|\s#")


def front_matter_units(front_matter: str) -> Iterator[tuple[int, int, Unit]]:
    """The texts of a front matter, with their places."""
    for entry in _ENTRY.finditer(front_matter):
        quote = entry["quote"] or ""
        tagged = tagged_text(entry["quoted"] if quote else entry["value"])
        if has_words(tagged) and (quote or not _NOT_PLAIN.search(tagged.text)):
            yield *entry.span("value"), Unit([tagged], partial(_written, quote), unchanged)


def _written(quote: str, outputs: list[str]) -> str:
    """The value of an entry, in quotes if it needs them."""
    (text,) = outputs
    if quote == "'" and "'" not in text:
        return f"'{text}'"
    if not quote and not _NOT_PLAIN.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
