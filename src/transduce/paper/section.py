"""What is measured for one table of the paper, as data; the command line and the page show it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from transduce.disk import write_atomically
from transduce.errors import RunError

Verdict = Literal["confirmed", "contradicted", "within noise", "not checked"]
RESULTS = "results.json"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, its figure, ours, and whether they agree."""

    claim: str
    paper: str
    ours: str
    verdict: Verdict


@dataclass(frozen=True)
class Table:
    """Figures in rows; all cells are text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """Lines through points, on logarithmic axes."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Section:
    """The measurements for one table or section of the paper."""

    title: str
    measured_on: str
    """The machine, and the settings that affect all figures."""
    claims: Sequence[Claim]
    tables: Sequence[Table] = field(default_factory=list)
    charts: Sequence[Chart] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "Section":
        """The section that `asdict` turned into a table."""
        return cls(
            title=table["title"],
            measured_on=table["measured_on"],
            claims=[Claim(**claim) for claim in table["claims"]],
            tables=[Table(**one) for one in table["tables"]],
            charts=[Chart(**chart) for chart in table["charts"]],
            notes=table["notes"],
        )


class Results:
    """`results.json` of a folder: the sections, and the finished training rows from which some are made."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RESULTS
        self._content: dict[str, Any] = {"sections": {}, "rows": {}}
        if self.path.exists():
            try:
                self._content = json.loads(self.path.read_text(encoding="utf-8"))
                self._content["sections"], self._content["rows"]
            except (ValueError, KeyError, TypeError):
                raise RunError(f"{self.path}: not the results of transduce paper; name another --out") from None

    @property
    def sections(self) -> dict[str, Section]:
        """The measured sections by name."""
        return {name: Section.of(table) for name, table in self._content["sections"].items()}

    def rows(self, table: str) -> dict[str, Any]:
        """The finished training rows of a table, by name."""
        return dict(self._content["rows"].get(table, {}))

    def add_row(self, table: str, name: str, row: Mapping[str, Any]) -> None:
        """Keep a finished row."""
        self._content["rows"].setdefault(table, {})[name] = dict(row)
        self._write()

    def add_section(self, name: str, section: Section) -> None:
        """Keep a section, instead of an earlier one of this name."""
        self._content["sections"][name] = asdict(section)
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps(self._content, indent=1, ensure_ascii=False).encode())
