"""Output of training on stderr: a progress bar in a terminal, plain lines otherwise."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text
from torch import Tensor

from transduce.files.texts import one_line

_BLOCKS = "▁▂▃▄▅▆▇█"
_STEPS = 5
"""Number of steps until the estimate; the first one is not measured, because it includes compilation."""
_SILENCE = 60.0
"""Seconds after which a log that is not a terminal gets a line."""
_NOTABLE = 0.3
"""Number of threads waiting for a core, on average, from which it is reported; about 0.02 on an idle machine."""


class Display:
    """Prints messages, measurements and samples of a run; in a terminal, the progress is updated all the time."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, highlight=False, quiet=quiet)
        self.console.soft_wrap = not self.console.is_terminal  # lines are broken between words in a terminal only
        self._live: Progress | None = None
        self._training: Any = None
        self._phase: Any = None
        self._deadline: float | None = None
        self._at_most = ""
        self._record: dict[str, Any] = {}
        self.counted = "tokens"
        """What the speed counts."""
        self.begin(0, 0)

    def log(self, line: str) -> None:
        """Print a line, above the progress bar if there is one."""
        style = "yellow" if line.startswith("warning: ") else None
        self.console.print(one_line(line), markup=False, style=style)
        self._printed = time.monotonic()

    def phase(self, what: str, total: int | None = None) -> None:
        """Show in a terminal what is being done instead of training, in `total` parts; no text ends the phase."""
        if self._live:
            if self._phase is not None:
                self._live.remove_task(self._phase)
            self._phase = self._live.add_task(what, total=total) if what else None
        elif what and self.console.is_terminal:
            self.log(f"{what} ...")

    def advance(self) -> None:
        """A part of the phase is done."""
        if self._live and self._phase is not None:
            self._live.advance(self._phase)

    def show_samples(self, samples: list[dict[str, str]]) -> None:
        """Print a few translations in a terminal, each cut to one line; they are not written to logs."""
        if self.console.is_terminal:
            for sample in samples:
                for mark, name in ((" ", "source"), ("→", "output"), ("=", "reference")):
                    text = Text(f"  {mark} {one_line(sample[name])}", no_wrap=True, overflow="ellipsis")
                    text.truncate(self.console.width, overflow="ellipsis")
                    self.console.print(text)

    def begin(self, step: int, steps: int, seconds: float | None = None) -> "Display":
        """Set the range of the progress and the time left, if it is limited; use the result as a context manager."""
        self._began = self._printed = time.monotonic()
        self._first_step, self._step, self._steps, self._work, self._waited = step, step, steps, 0, 0.0
        self._count = 0
        """Number of steps of this process."""
        self._deadline = None if seconds is None else self._began + seconds
        return self

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self._live = Progress(BarColumn(bar_width=10), _Status(self), console=self.console, transient=True)
            self._training = self._live.add_task("", total=self._steps, completed=self._step)
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live:
            self._live.stop()
            self._live = self._phase = None

    def set_end(self, steps: int, *, may_be_earlier: bool) -> None:
        """Set the last step; if the run may end earlier, the time left is an upper bound."""
        self._steps, self._at_most = steps, "at most " if may_be_earlier else ""
        if self._live:
            self._live.update(self._training, total=steps)

    def step_done(self, step: int, work: int, norm: Tensor, log_every: int) -> None:
        """Show a step that ended with this gradient norm; after the first few, the time left and advice on threads."""
        self._step, self._count, self._work = step, self._count + 1, self._work + work
        if self._count in (1, _STEPS):
            norm.item()  # waits for a GPU
        now = time.monotonic()
        if self._count == 1:  # it is slower than the others
            self._began = self._printed = now
            self._first_step, self._work, self._waited = step, 0, _waiting_seconds()
        if self._live:
            self._live.update(self._training, completed=step)
        elif (self._count == _STEPS and log_every > _STEPS) or now - self._printed > _SILENCE:
            self.log(f"step {step:,}/{self._steps:,}  {self._time_left()} left")
        if self._count == _STEPS and norm.device.type == "cpu" and (threads := torch.get_num_threads()) > 1:
            waiting = (_waiting_seconds() - self._waited) / max(1e-9, now - self._began)
            if waiting >= _NOTABLE:
                self.log(
                    f"other work competes for the cores: on average {waiting:.1f} of {threads} threads wait for one; "
                    f"train.threads={max(1, threads - round(waiting + 0.5))} may be faster"
                )

    def show(self, record: dict[str, Any]) -> None:
        self._step, self._record = record["step"], record
        if not self._live:
            self.log(f"{'  '.join(self._parts())}  {self._time_left()} left")

    def status(self) -> str:
        """The line beside the progress bar; the least important is last, because a narrow terminal truncates it."""
        if not self._count and not self._record:
            return f"starting, {clock_time(time.monotonic() - self._began)}"
        return f"{self._time_left()} {(' ' if self._narrow else '  ').join(self._parts())}"

    def _parts(self) -> list[str]:
        """The current step, and the last measurement; before that, the speed so far."""
        record = self._record
        parts = [f"step {self._step:,}/{self._steps:,}"]
        if "loss" in record:
            parts += [f"loss {record['loss']:.3f}", f"ppl {record['perplexity']:.2f}"]
        if record:
            parts += [f"{record['tokens_per_second']:,.0f} {self._unit}", f"lr {record['learning_rate']:.2e}"]
            parts += [] if self._narrow else [f"{record['memory_gb']:.1f} GB"]
            if record["skipped"]:
                parts.append(f"{record['skipped']} steps skipped: gradients not finite")
        elif self._work:
            parts.append(f"{self._work / max(1e-9, time.monotonic() - self._began):,.0f} {self._unit}")
        return parts

    @property
    def _unit(self) -> str:
        """The unit of the speed, for example target tok/s; in a narrow terminal tok/s."""
        counted = self.counted.split()[-1] if self._narrow else self.counted
        return counted.replace("tokens", "tok") + "/s"

    @property
    def _narrow(self) -> bool:
        """Whether a progress bar has to fit into a terminal of about 80 columns."""
        return self._live is not None and self.console.width < 100

    def _time_left(self) -> str:
        now, measured = time.monotonic(), self._step - self._first_step
        if not measured:
            return "-:--:--"
        left = (now - self._began) / measured * (self._steps - self._step)
        if self._deadline is not None:
            left = min(left, max(0.0, self._deadline - now))
        return ("≤" if self._narrow and self._at_most else self._at_most) + clock_time(left)


class _Status(ProgressColumn):
    """The text beside the bar of training or of a phase; it is rendered anew several times a second."""

    def __init__(self, display: Display) -> None:
        super().__init__(Column(no_wrap=True))  # in a narrow terminal, the bar becomes shorter
        self._display = display

    def render(self, task: Task) -> Text:
        if not task.description:
            return Text(self._display.status())
        done = f"{task.completed:,.0f}/{task.total:,.0f}" if task.total else clock_time(task.elapsed or 0)
        return Text(f"{done} {task.description}")


def clock_time(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Values as a row of blocks of different height; if there are more than `width`, means of neighbours."""
    if not values:
        return ""
    size = -(-len(values) // width)
    means = [fmean(values[start : start + size]) for start in range(0, len(values), size)]
    low, high = min(means), max(means)
    return "".join(_BLOCKS[int((value - low) / ((high - low) or 1) * (len(_BLOCKS) - 1))] for value in means)


def _waiting_seconds() -> float:
    """Time that the threads of this process have been ready to run but had no core; 0 if the system does not tell."""
    nanoseconds = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            nanoseconds += int(path.read_text().split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended
            continue
    return nanoseconds / 1e9
