"""The look of the pages: one HTML file that needs neither network nor script."""

from collections.abc import Iterable
from html import escape
from pathlib import Path

from transduce.disk import write_atomically

STOPS = 12
"""Largest number of stops of a slider."""
_SLIDER = "".join(
    f"@media screen {{ .slider:has(input.s{n}:checked) td > .s{n} {{ display: block; }} }}\n"
    for n in range(1, STOPS + 1)
)
STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8") + _SLIDER
"""Style sheet of the report, and of other pages of the same look."""


def write_page(path: Path, title: str, body: str) -> None:
    """Write a page in the look of the report."""
    page = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · transduce</title><style>{STYLE}</style></head>
<body><main>{body}</main></body>
</html>
"""
    write_atomically(path, page.encode())


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]], note: str = "", kind: str = "named") -> str:
    """A titled table of cells of HTML; empty without rows. The first cell of a row is its name, except in `samples`."""
    names = [escape(name) for name in head]
    body = "".join(
        "<tr>" + "".join(f'<td data-name="{name}">{cell}' for name, cell in zip(names, row, strict=True))
        for row in rows
    )
    first = "".join(f"<th>{name}" for name in names)
    note = f'<div class="soft note">{note}</div>' if note else ""
    return f'<h2>{title}</h2>{note}<div class="card wide {kind}"><table><tr>{first}{body}</table></div>' if body else ""


def command_html(command: str) -> str:
    """A command that is broken only at its spaces, unless a word is wider than the page."""
    words = " ".join(f"<span>{escape(word)}</span>" for word in command.split(" "))
    return f'<div class="command">{words}</div>'
