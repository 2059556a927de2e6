"""The measurements of a run in TensorBoard or Weights & Biases."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from transduce.config import to_table, to_toml
from transduce.disk import write_atomically
from transduce.errors import ConfigError, RunError
from transduce.training.recipe import Recipe


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
