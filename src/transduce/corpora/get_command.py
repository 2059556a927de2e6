"""`transduce data get`."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from transduce.files.texts import one_line


def get(
    name: Annotated[str, typer.Argument(help="A corpus, e.g. wmt14-en-de, or a .toml file that describes one.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write.", show_default="data/NAME")] = None,
    mirror: Annotated[
        str | None, typer.Option(help="Mirror server to download from, with the same paths.", metavar="URL")
    ] = None,
) -> None:
    """Download and clean a public corpus: training, validation and test data.

    Every file is verified by its SHA-256. Run the same command again to resume an interrupted download.
    """
    from transduce.corpora.get.catalogue import read_corpus
    from transduce.corpora.get.get import get_corpus
    from transduce.corpora.get.make import file_names

    corpus = read_corpus(name)
    out = out or Path("data") / Path(name).stem
    with _Display() as display:
        get_corpus(corpus, out, mirror, display.log, display.advance)
        train, valid, _ = (out / file for file in file_names(corpus).values())
        display.log(f"to train on it: transduce train --train {train} --valid {valid} --out runs/{out.name}")


class _Display:
    """Prints lines to stderr and, in a terminal, the progress of each download."""

    def __init__(self) -> None:
        self._live: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "_Display":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
            from rich.progress import TransferSpeedColumn as SpeedColumn

            columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), DownloadColumn(), SpeedColumn())
            console = Console(stderr=True, highlight=False, soft_wrap=True)
            self._live = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def log(self, line: str) -> None:
        """Print a line."""
        line = f"data: {one_line(line)}"
        if self._live:
            self._live.console.print(line, markup=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def advance(self, name: str, size: int, done: int) -> None:
        """Update the progress of an archive: `done` of `size` bytes."""
        if self._live:
            if name not in self._tasks:
                self._tasks[name] = self._live.add_task(name, total=size, completed=done)
            self._live.update(self._tasks[name], completed=done)
