"""The look of the pages: one HTML file that needs neither network nor script."""

# ruff: noqa: E501

from html import escape
from pathlib import Path

from transduce.disk import write_atomically
from transduce.report.charts import CHART_STYLE

STYLE = (
    """
:root { --ink: #1d2433; --soft: #667085; --line: #e4e7ec; --page: #fbfbfd; --card: #fff; --a: #2563c9; --b: #d9730d; --c: #12805c; --d: #9333c9; --e: #b42318; --f: #667085; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #303746; --page: #12151c; --card: #1a1f2a; --a: #7aa7f0; --b: #f0a35c; --c: #5ecba1; --d: #c79af0; --e: #f58a80; --f: #98a2b3; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 32px 20px 60px; color: var(--ink); background: var(--page);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 17px; margin: 36px 0 12px; } .soft { color: var(--soft); }
.facts { display: flex; flex-wrap: wrap; gap: 12px; margin-top: 18px; }
.fact, figure, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.fact b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(380px, 100%), 1fr)); gap: 14px; }
figure { margin: 0; } figcaption { font-size: 14px; margin-bottom: 6px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
.samples td { white-space: pre-wrap; }
td, th { text-align: left; vertical-align: top; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } td.name { color: var(--soft); white-space: nowrap; width: 1%; }
.settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr)); gap: 14px; font-size: 13px; }
.settings td { word-break: break-word; } td u { text-decoration-color: var(--b); text-underline-offset: 3px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 14px 0 0; } summary { cursor: pointer; margin: 14px 0; color: var(--soft); }
.fact { max-width: 100%; overflow-wrap: anywhere; } .about { margin-top: 14px; font-size: 13px; }
"""
    + CHART_STYLE
)
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
