"""`metrics.jsonl`: one line for each measurement of a run, the only record that the report is drawn from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transduce.disk import write_atomically

Record = dict[str, Any]


class Metrics:
    """The measurements of a run, on disk and in memory."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path = path
        self.records: list[Record] = []
        self._say = say
        self._behind = False
        """Whether the disk did not take the last one."""

    def start_at(self, step: int) -> None:
        """Take up the measurements up to this step; later ones belong to a future that did not happen."""
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue  # nothing after the last newline, or a line that was being written when the run was killed
            if record["step"] <= step:
                self.records.append(record)
        self._write_all()

    def add(self, kind: str, **values: Any) -> Record:
        """Write down one measurement; where the disk is full, it is written with the next one."""
        record = {"kind": kind, **values}
        self.records.append(record)
        try:
            if self._behind:
                self._write_all()
            else:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(_line(record))
            self._behind = False
        except OSError as error:
            self._behind = True
            self._say(f"warning: {self.path} was not written: {error}; it is tried again with the next measurement")
        return record

    def of(self, kind: str) -> list[Record]:
        """All measurements of a kind, oldest first."""
        return [record for record in self.records if record["kind"] == kind]

    def _write_all(self) -> None:
        write_atomically(self.path, "".join(map(_line, self.records)).encode())


def _line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
