"""`metrics.jsonl`: one line for each measurement of a run; also sent to TensorBoard or Weights & Biases."""

import json
import math
import platform
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch

from transduce.config import to_table, to_toml
from transduce.disk import write_atomically
from transduce.errors import ConfigError, RunError
from transduce.training.recipe import Recipe
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


class Sink(Protocol):
    """A program that shows measurements."""

    def add(self, numbers: dict[str, float], step: int) -> None:
        """Add the numbers of one measurement by their names, such as "valid/bleu"."""

    def close(self) -> None:
        """Write what is buffered."""


def require_packages(recipe: Recipe) -> None:
    """Raise an error if a sink needs a package that is not installed."""
    wanted = {"tensorboard": recipe.train.tensorboard, "wandb": recipe.train.wandb}
    for package in (name for name, value in wanted.items() if value and not find_spec(name)):
        raise ConfigError(f"train.{package} needs the package {package}: pip install 'transduce[tracking]'")


@contextmanager
def tracking(
    recipe: Recipe, folder: Path, step: int, log: Callable[[str], None]
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Open the sinks that the recipe asks for, for a run that starts or resumes at this step.

    Gives a function that adds a measurement to all of them. A sink that fails is reported and not used any more.
    """
    sinks: dict[str, Sink] = {}
    if recipe.train.tensorboard:
        sinks["train.tensorboard"] = _TensorBoard(recipe, folder, step)
    if recipe.train.wandb:
        sinks["train.wandb"] = _WeightsAndBiases(recipe, folder)

    def each(use: Callable[[Sink], None]) -> None:
        for name, sink in list(sinks.items()):
            try:
                use(sink)
            except Exception as error:  # a program that shows a run must not end it
                log(f"warning: {name} is not used any more: {error}. Training continues")
                del sinks[name]

    def add(record: Mapping[str, Any]) -> None:
        if record["kind"] != "start":  # it describes the machine and has no curves
            each(lambda sink: sink.add(numbers_of(record), record["step"]))

    try:
        yield add
    finally:
        each(lambda sink: sink.close())


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a measurement by name: kind/name, or kind/file/name for the scores of single files."""
    values = {name: value for name, value in record.items() if name not in ("kind", "step", "confusion")}
    return dict(_flat(values, record["kind"]))


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, prefix if name == "files" else f"{prefix}/{name}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}/{name}", value


class _TensorBoard:
    """Event files in the folder `tensorboard` of the run."""

    def __init__(self, recipe: Recipe, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Events after this step are of steps that are computed again; TensorBoard hides them.
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)
        if not step:
            self._writer.add_text("config", "\n".join(f"    {line}" for line in to_toml(recipe).splitlines()))

    def add(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    """A run of Weights & Biases, which is continued when training resumes; its files are in the folder of the run.

    Numbers and settings are sent, but no text of the corpus, no code, and nothing about git or the machine.
    """

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        import wandb

        name = folder / "wandb-id"
        if not name.exists():
            write_atomically(name, secrets.token_hex(8).encode())
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True
        )
        try:
            self._run = wandb.init(
                project=recipe.train.wandb,
                name=folder.resolve().name,
                id=name.read_text(encoding="utf-8"),
                resume="allow",
                dir=folder,
                config=to_table(recipe),
                settings=quiet,
            )
        except Exception as error:  # of many kinds: no network, no key, no permission
            raise RunError(
                f"train.wandb: Weights & Biases cannot be used: {error}; log in with: wandb login, or set the "
                "environment variable WANDB_MODE=offline and send the run later with: wandb sync"
            ) from None
        self._run.define_metric("*", step_metric="step")  # its own count cannot go back when a run is resumed

    def add(self, numbers: dict[str, float], step: int) -> None:
        self._run.log({**numbers, "step": step})

    def close(self) -> None:
        self._run.finish()


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
            "transduce": __version__,
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
