"""Admonitions of Markdown, as Python-Markdown and MkDocs have them: a line `!!! note "Title"`, and indented text."""

import re

_START = re.compile(r'( *)(?:!!!|\?\?\?\+?)[ \t]+[\w -]+(?:"([^"]*)")?[ \t]*\r?')
_INDENTATION = 4


def open_admonitions(source: str) -> str:
    """The Markdown with the text of admonitions outside of them, line by line: CommonMark would read it as code.

    The title becomes a heading. Every text remains at the end of its line, but for a quotation mark.
    """
    lines, opened = source.split("\n"), list[str]()
    inside: list[int] = []
    """For each admonition around the line: the indentation of its text."""
    for line, following in zip(lines, _indentations_after(lines), strict=True):
        while line.strip() and inside and _indentation(line) < inside[-1]:
            inside.pop()
        outer = inside[-1] if inside else 0
        start = _START.fullmatch(line)
        if start and len(start[1]) - outer < _INDENTATION <= following - len(start[1]):
            inside.append(len(start[1]) + _INDENTATION)
            opened.append(f"# {start[2]}" if start[2] else "")
        else:
            opened.append(line[outer:] if line.strip() else line)
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
