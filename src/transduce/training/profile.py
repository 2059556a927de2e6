"""Profile of a few training steps: a trace for a viewer and a table of the slowest operations."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

_SKIPPED, _RECORDED = 10, 5
"""Warm-up steps before the recording, and recorded steps."""
_ROWS = 40


class StepProfile(AbstractContextManager["StepProfile"]):
    """Records a few steps of training into a folder."""

    def __init__(self, folder: Path, device: torch.device, log: Callable[[str], None]) -> None:
        self._folder, self._device, self._log = folder, device, log
        self._steps = 0
        gpu = [ProfilerActivity.CUDA] if device.type == "cuda" else []
        self._profile = torch.profiler.profile(activities=[ProfilerActivity.CPU, *gpu])

    def after_step(self) -> None:
        """Count a step; start or stop the recording if this step is due."""
        self._steps += 1
        if self._steps == _SKIPPED:
            self._profile.start()
        elif self._steps == _SKIPPED + _RECORDED:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            self._profile.stop()
            self._write()

    def _write(self) -> None:
        self._folder.mkdir(exist_ok=True)
        trace, table = self._folder / "trace.json.gz", self._folder / "table.txt"
        self._profile.export_chrome_trace(str(trace))
        table.write_text(self._table(), encoding="utf-8")
        self._log(f"profile of {_RECORDED} steps: {table}, and {trace} for chrome://tracing or ui.perfetto.dev")

    def _table(self) -> str:
        measure = "self_device_time_total" if self._device.type == "cuda" else "self_cpu_time_total"
        events = [(getattr(event, measure) / 1000 / _RECORDED, event) for event in self._profile.key_averages()]
        rows = sorted(((time, event) for time, event in events if time > 0), key=lambda row: -row[0])
        total = sum(time for time, _ in rows)
        lines = [f"{total:.2f} ms per step on {self._device}", "", f"{'ms':>9} {'share':>6} {'calls':>7}  operation"]
        for time, event in rows[:_ROWS]:
            lines.append(f"{time:9.3f} {time / total:6.1%} {event.count / _RECORDED:7.1f}  {event.key[:120]}")
        rest = sum(time for time, _ in rows[_ROWS:])
        return "\n".join([*lines, f"{rest:9.3f} {rest / total:6.1%} {'':>7}  other operations", ""])

    def __exit__(self, *_: Any) -> None:
        if _SKIPPED <= self._steps < _SKIPPED + _RECORDED:
            self._profile.stop()
        if self._steps < _SKIPPED + _RECORDED:
            self._log(f"no profile: it needs {_SKIPPED + _RECORDED} steps, and there were {self._steps}")
