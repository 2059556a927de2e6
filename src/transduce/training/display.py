"""Output of training on stderr: a progress bar in a terminal, plain lines otherwise."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from torch import Tensor

from transduce.files.texts import one_line

_BLOCKS = "▁▂▃▄▅▆▇█"
_STEPS = 5
"""Number of steps until the estimate; the first one is not measured, because it includes compilation."""
_NOTABLE = 0.3
"""Number of threads waiting for a core, on average, from which it is reported; about 0.02 on an idle machine."""


class Display:
    """Prints messages, measurements and samples of a run."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, highlight=False, quiet=quiet)
        self.console.soft_wrap = not self.console.is_terminal  # lines are broken between words in a terminal only
        self._live: Progress | None = None
        self._task: Any = None
        self._began, self._first_step, self._steps = time.monotonic(), 0, 0
        self._deadline: float | None = None
        self._at_most = ""

    def log(self, line: str) -> None:
        """Print a line, above the progress bar if there is one."""
        style = "yellow" if line.startswith("warning: ") else None
        self.console.print(one_line(line), markup=False, style=style)

    def phase(self, what: str) -> None:
        """Say in a terminal what is being done instead of training."""
        if self._live:
            self._live.update(self._task, description=what)
        elif self.console.is_terminal:
            self.log(f"{what} ...")

    def show_samples(self, samples: list[dict[str, str]]) -> None:
        """Print a few translations in a terminal; they are not written to logs."""
        if self.console.is_terminal:
            for sample in samples:
                for mark, name in ((" ", "source"), ("→", "output"), ("=", "reference")):
                    self.log(f"  {mark} {sample[name]}")

    def begin(self, step: int, steps: int, seconds: float | None = None) -> "Display":
        """Set the range of the progress and the time left, if it is limited; use the result as a context manager."""
        self._began, self._first_step, self._steps = time.monotonic(), step, steps
        self._deadline = None if seconds is None else self._began + seconds
        if self.console.is_terminal:
            # The least important column is last, because a narrow terminal truncates the line.
            columns = (BarColumn(bar_width=10), TextColumn("{task.fields[left]}"), TextColumn("{task.description}"))
            self._live = Progress(*columns, console=self.console, transient=True)
            self._task = self._live.add_task("starting", total=steps, completed=step, left="-:--:--")
        return self

    def set_end(self, steps: int, *, may_be_earlier: bool) -> None:
        """Set the last step; if the run may end earlier, the time left is an upper bound."""
        self._steps, self._at_most = steps, "at most " if may_be_earlier else ""

    def restart_clock(self, step: int) -> None:
        """Estimate the time left from the steps after this one; those before it were slower."""
        self._began, self._first_step = time.monotonic(), step

    def show_time_left(self, step: int) -> None:
        """Show the time left before the first measurement."""
        if self._live:
            self._live.update(self._task, total=self._steps, completed=step, left=self._time_left(step))
        else:
            self.log(f"step {step:,}/{self._steps:,}  {self._time_left(step)} left")

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def show(self, record: dict[str, Any]) -> None:
        """Show a measurement of training."""
        step = record["step"]
        parts = [f"step {step:,}/{self._steps:,}"]
        if "loss" in record:
            parts += [f"loss {record['loss']:.3f}", f"ppl {record['perplexity']:.2f}"]
        parts += [f"{record['tokens_per_second']:,.0f} tok/s", f"lr {record['learning_rate']:.2e}"]
        if not self._narrow:
            parts.append(f"{record['memory_gb']:.1f} GB")
        if record["skipped"]:
            parts.append(f"{record['skipped']} steps skipped: gradients not finite")
        left = self._time_left(step)
        text = (" " if self._narrow else "  ").join(parts)
        if self._live:
            self._live.update(self._task, total=self._steps, completed=step, left=left, description=text)
        else:
            self.log(f"{text}  {left} left")

    @property
    def _narrow(self) -> bool:
        """Whether a progress bar has to fit into a terminal of about 80 columns."""
        return self._live is not None and self.console.width < 100

    def _time_left(self, step: int) -> str:
        now, measured = time.monotonic(), step - self._first_step
        if not measured:
            return "-:--:--"
        left = (now - self._began) / measured * (self._steps - step)
        if self._deadline is not None:
            left = min(left, max(0.0, self._deadline - now))
        minutes, seconds = divmod(int(left), 60)
        hours, minutes = divmod(minutes, 60)
        at_most = "≤" if self._narrow and self._at_most else self._at_most
        return f"{at_most}{hours}:{minutes:02}:{seconds:02}"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Values as a row of blocks of different height; if there are more than `width`, means of neighbours."""
    if not values:
        return ""
    size = -(-len(values) // width)
    means = [fmean(values[start : start + size]) for start in range(0, len(values), size)]
    low, high = min(means), max(means)
    return "".join(_BLOCKS[int((value - low) / ((high - low) or 1) * (len(_BLOCKS) - 1))] for value in means)


class FirstSteps:
    """Measures the first few steps of this process and reports once."""

    def __init__(self, display: Display, log_every: int) -> None:
        self._display, self._log_every = display, log_every
        self._count, self._began, self._waited = 0, 0.0, 0.0

    def after_step(self, step: int, norm: Tensor) -> None:
        """Count a step that ended with this gradient norm."""
        self._count += 1
        if self._count == 1:
            norm.item()  # waits for a GPU
            self._began, self._waited = time.monotonic(), _waiting_seconds()
            self._display.restart_clock(step)
        elif self._count == _STEPS:
            norm.item()
            if self._log_every > _STEPS:
                self._display.show_time_left(step)
            waiting = (_waiting_seconds() - self._waited) / max(1e-9, time.monotonic() - self._began)
            threads = torch.get_num_threads()
            if norm.device.type == "cpu" and threads > 1 and waiting >= _NOTABLE:
                self._display.log(
                    f"other work competes for the cores: on average {waiting:.1f} of {threads} threads wait for one; "
                    f"train.threads={max(1, threads - round(waiting + 0.5))} may be faster"
                )


def _waiting_seconds() -> float:
    """Time that the threads of this process have been ready to run but had no core; 0 if the system does not tell."""
    nanoseconds = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            nanoseconds += int(path.read_text().split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended
            continue
    return nanoseconds / 1e9
