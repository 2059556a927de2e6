"""`metrics.jsonl`: one line for each measurement of a run, the only record that the report is drawn from."""

import json
from pathlib import Path
from typing import Any

from transduce.disk import write_whole

Record = dict[str, Any]


class Metrics:
    """The measurements of a run, on disk and in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []

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
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in self.records)
        write_whole(self.path, text.encode())

    def add(self, kind: str, **values: Any) -> Record:
        """Write down one measurement."""
        record = {"kind": kind, **values}
        self.records.append(record)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        return record

    def of(self, kind: str) -> list[Record]:
        """All measurements of a kind, oldest first."""
        return [record for record in self.records if record["kind"] == kind]
