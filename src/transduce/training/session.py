"""What the report tells about a run besides its measurements: command, device, versions, model and data."""

import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


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
        "versions": {
            "transduce": version("transduce"),
            "torch": torch.__version__,
            "Python": platform.python_version(),
        },
    }


def _command() -> str:
    """The command line, if `transduce` was started from one."""
    program = Path(sys.argv[0])
    if program.name == "transduce" or program.parts[-2:] == ("transduce", "__main__.py"):
        return shlex.join(["transduce", *sys.argv[1:]])
    return ""
