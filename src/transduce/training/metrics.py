"""`metrics.jsonl`: one line for each measurement of a run."""

import json
import math
import platform
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from transduce.disk import write_atomically
from transduce.errors import RunError
from transduce.version import __version__

Record = dict[str, Any]

_MAX_BYTES = 1 << 31


def read_records(path: Path) -> list[Record]:
    """The measurements in a file. Lines that are no measurement are left out: the last may be cut off."""
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        raise RunError(f"{path}: not a plain file, or too large for the measurements of a run")
    records = []
    with path.open("rb") as file:
        for line in file:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("kind"), str) and _is_step(record.get("step")):
                records.append(record)
    return records


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**53


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
        if self.path.exists():
            self.records += [record for record in read_records(self.path) if record["step"] <= step]
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


def points_of(records: list[Record], key: str) -> list[tuple[float, float]]:
    """The finite values of a measurement with their steps."""
    return [
        (record["step"], record[key])
        for record in records
        if isinstance(record.get(key), int | float) and -math.inf < record[key] < math.inf
    ]


def figure_text(key: str, value: float) -> str:
    """A figure as the log, the report and the comparison show it: a loss with three digits, any other with two."""
    return f"{value:.{3 if key.endswith('loss') else 2}f}"


def describe_session(device: torch.device, processes: int, parameters: int, data: dict[str, Any]) -> dict[str, Any]:
    """The values of a measurement of the kind "start", which begins each session of a run."""
    threads = torch.get_num_threads()
    cpu = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": _command(),
        "device": f"{processes} x {name}" if processes > 1 else name,
        "parameters": parameters,
        "data": {name: count for name, count in data.items() if isinstance(count, int)},
        "versions": {"transduce": __version__, "torch": torch.__version__, "Python": platform.python_version()},
    }


def _command() -> str:
    """The command line, if `transduce` was started from one."""
    program = Path(sys.argv[0])
    if program.name == "transduce" or program.parts[-2:] == ("transduce", "__main__.py"):
        return shlex.join(["transduce", *sys.argv[1:]])
    return ""
