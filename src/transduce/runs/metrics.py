"""`metrics.jsonl`: one line for each measurement of a run; the report is generated from it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transduce.disk import write_atomically

Record = dict[str, Any]


class Metrics:
    """The measurements of a run, on disk and in memory."""

    def __init__(self, path: Path, log: Callable[[str], None]) -> None:
        self.path = path
        self.records: list[Record] = []
        self._log = log
        self.on_add: Callable[[Record], None] = lambda _: None
        """Called with every measurement after it was written."""
        self._unwritten = False
        """Whether writing the last measurement failed."""

    def start_at(self, step: int) -> None:
        """Read the measurements up to this step and delete later ones, which are after the resumed checkpoint."""
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue  # empty after the last newline, or cut off because the run was killed
            if record["step"] <= step:
                self.records.append(record)
        self._write_all()

    def add(self, kind: str, **values: Any) -> Record:
        """Append one measurement; if that fails, it is written together with the next one."""
        record = {"kind": kind, **values}
        self.records.append(record)
        try:
            if self._unwritten:
                self._write_all()
            else:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(_line(record))
            self._unwritten = False
        except OSError as error:
            self._unwritten = True
            self._log(f"warning: {self.path} was not written: {error}; retrying with the next measurement")
        self.on_add(record)
        return record

    def of(self, kind: str) -> list[Record]:
        """All measurements of a kind, oldest first."""
        return [record for record in self.records if record["kind"] == kind]

    def _write_all(self) -> None:
        write_atomically(self.path, "".join(map(_line, self.records)).encode())


def _line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
