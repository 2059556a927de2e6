"""The first steps of a process: how long the run will take, and whether other work competes for the cores."""

import time
from pathlib import Path

import torch
from torch import Tensor

from transduce.training.display import Display

_STEPS = 5
"""Number of steps until the estimate; the first one is not measured, because it includes compilation."""
_NOTABLE = 0.3
"""Number of threads waiting for a core, on average, from which it is reported; about 0.02 on an idle machine."""


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
