"""Sections as text for a terminal."""

from collections.abc import Iterator

from transduce.paper.section import Section

_SIGNS = {"confirmed": "+", "contradicted": "!", "within noise": "~", "not checked": "?"}


def section_text(section: Section) -> str:
    """The claims with the paper's figure and ours, then the tables and notes."""
    return "\n".join(_lines(section)) + "\n"


def verdicts(section: Section) -> str:
    """How many claims have each verdict."""
    found = [claim.verdict for claim in section.claims]
    return ", ".join(f"{found.count(verdict)} {verdict}" for verdict in _SIGNS if verdict in found)


def _lines(section: Section) -> Iterator[str]:
    yield section.title
    yield f"({section.measured_on})"
    for claim in section.claims:
        yield f"{_SIGNS[claim.verdict]} {claim.claim}"
        yield f"    paper: {claim.paper}; here: {claim.ours}: {claim.verdict}"
    for table in section.tables:
        if table.rows:
            yield f"\n{table.title}"
            widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
            for row in (table.head, *table.rows):
                first, *others = (
                    cell.ljust(width) if not n else cell.rjust(width)
                    for n, (cell, width) in enumerate(zip(row, widths, strict=True))
                )
                yield "  ".join([first, *others]).rstrip()
    yield f"\n{verdicts(section)}"
