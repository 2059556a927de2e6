"""The look of the pages: one HTML file that needs neither network nor script."""

# ruff: noqa: E501

from collections.abc import Iterable
from html import escape
from pathlib import Path

from transduce.disk import write_atomically
from transduce.report.charts import CHART_STYLE

STOPS = 12
"""Largest number of stops of a slider."""
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --soft: #5d6778; --line: #e4e7ec; --page: #fbfbfd; --card: #fff; --a: #2563c9; --b: #d9730d; --c: #12805c; --d: #9333c9; --e: #b42318; --f: #667085; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #303746; --page: #12151c; --card: #1a1f2a; --a: #7aa7f0; --b: #f0a35c; --c: #5ecba1; --d: #c79af0; --e: #f58a80; --f: #98a2b3; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 32px 20px 60px; color: var(--ink); background: var(--page);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 36px 0 12px; } .soft { color: var(--soft); }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(150px, 100%), 1fr)); gap: 12px; margin-top: 18px; }
.fact, figure, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.fact { font-size: 13px; color: var(--soft); overflow-wrap: anywhere; }
.fact b { display: block; font-size: 22px; line-height: 1.3; color: var(--ink); font-variant-numeric: tabular-nums; }
.verdict { margin-top: 18px; border-left: 5px solid var(--own); font-size: 17px; } .verdict b { color: var(--own); }
.verdict .command { margin-top: 8px; } .good { --own: var(--c); } .bad { --own: var(--e); } .calm { --own: var(--a); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(380px, 100%), 1fr)); gap: 14px; }
figure { margin: 0; } figcaption { font-size: 14px; margin-bottom: 6px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; } .samples td { white-space: pre-wrap; min-width: 140px; }
td, th { text-align: left; vertical-align: top; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); }
tr:last-child > td { border-bottom: 0; } th { color: var(--soft); font-weight: 500; } td.name, .named td:first-child { color: var(--soft); width: 1%; min-width: 110px; }
.settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr)); gap: 14px; font-size: 13px; }
.settings td { overflow-wrap: anywhere; } td u { text-decoration-color: var(--b); text-underline-offset: 3px; }
.command { font: 13px/1.6 ui-monospace, monospace; margin: 14px 0 0; } .command span { display: inline-block; max-width: 100%; overflow-wrap: anywhere; }
summary { cursor: pointer; margin: 14px 0; color: var(--soft); } .about { margin-top: 14px; font-size: 13px; }
.note { margin-bottom: 12px; } .stops { border: 0; margin: 12px 0 8px; padding: 0; display: flex; align-items: start; } .stops legend { float: left; padding: 0 12px 0 0; }
.stops label { flex: 1; max-width: 110px; text-align: center; font-size: 12px; color: var(--soft); cursor: pointer; position: relative; }
.stops label + label::before { content: ""; position: absolute; top: 8px; right: 50%; width: 100%; height: 2px; background: var(--line); z-index: 0; }
.stops input { display: block; margin: 2px auto; width: 14px; height: 14px; accent-color: var(--a); position: relative; z-index: 1; cursor: pointer; }
.stops input:checked + span { color: var(--ink); font-weight: 600; }
@media screen { .slider:has(.stops) td > div { display: none; } }
"""
_SLIDER = "".join(
    f"@media screen {{ .slider:has(input.s{n}:checked) td > .s{n} {{ display: block; }} }}\n"
    for n in range(1, STOPS + 2)
)
STYLE = _STYLE + _SLIDER + CHART_STYLE
"""Style sheet of the report, and of other pages of the same look."""


def write_page(path: Path, title: str, body: str) -> None:
    """Write a page in the look of the report."""
    page = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · transduce</title><style>{STYLE}</style></head>
<body>{body}</body>
</html>
"""
    write_atomically(path, page.encode())


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]], note: str = "", kind: str = "named") -> str:
    """A titled table of cells of HTML; empty without rows. The first cell of a row is its name, except in `samples`."""
    body = "".join("<tr>" + "".join(f"<td>{cell}" for cell in row) for row in rows)
    first = "".join(f"<th>{escape(name)}" for name in head)
    note = f'<div class="soft note">{note}</div>' if note else ""
    return f'<h2>{title}</h2>{note}<div class="card wide {kind}"><table><tr>{first}{body}</table></div>' if body else ""


def command_html(command: str) -> str:
    """A command that is broken only at its spaces, unless a word is wider than the page."""
    words = " ".join(f"<span>{escape(word)}</span>" for word in command.split(" "))
    return f'<div class="command">{words}</div>'
