"""Indented text of Markdown that CommonMark reads as code.

It belongs to an admonition, as Python-Markdown and MkDocs have them (a line `!!! note "Title"`), or to a definition, as
Pandoc has them (a line `:   text` below a term).
"""

import re

_ADMONITION = re.compile(r'( *)(?:!!!|\?\?\?\+?)[ \t]+[\w -]+(?:"([^"]*)")?[ \t]*\r?')
_DEFINITION = re.compile(r" {0,3}[:~][ \t]+\S.*")
_INDENTATION = 4


def without_indentation(source: str) -> str:
    """The Markdown with the text of admonitions and definitions outside of them, line by line.

    The title of an admonition becomes a heading. Every text remains at the end of its line, but for a quotation mark.
    """
    lines, opened = source.split("\n"), list[str]()
    inside: list[int] = []
    """For each admonition or definition around the line: the indentation of its text."""
    for number, (line, following) in enumerate(zip(lines, _indentations_after(lines), strict=True)):
        while line.strip() and inside and _indentation(line) < inside[-1]:
            inside.pop()
        outer = inside[-1] if inside else 0
        start = _ADMONITION.fullmatch(line)
        if start and len(start[1]) - outer < _INDENTATION <= following - len(start[1]):
            inside.append(len(start[1]) + _INDENTATION)
            opened.append(f"# {start[2]}" if start[2] else "")
            continue
        opened.append(line[outer:] if line.strip() else line)
        if _DEFINITION.fullmatch(opened[-1]) and "".join(lines[max(0, number - 2) : number]).strip():
            inside.append(outer + _INDENTATION)
    return "\n".join(opened)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _indentations_after(lines: list[str]) -> list[int]:
    """For each line, the indentation of the next one that is not empty."""
    indentations, after = list[int](), 0
    for line in reversed(lines):
        indentations.append(after)
        after = _indentation(line) if line.strip() else after
    return indentations[::-1]
