"""`transduce compare`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.messages import log
from transduce.cli.options import ForceOption


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, finished or not.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Page to write with the curves of all runs.")] = None,
    force: ForceOption = False,
) -> None:
    """Compare runs: scores, losses, speed, and differing settings.

    The best figure of each row has a star. Finished translation models are tested for a significant difference by
    paired bootstrap resampling. With --out, the curves of all runs and the translations that differ most are shown in
    one HTML file, which needs no network.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from transduce.cli.outputs import refuse_overwriting, require_file_output
    from transduce.files.texts import one_line
    from transduce.report import compare as comparison

    if out:
        require_file_output(out)
        refuse_overwriting(out, force=force)
    compared = comparison.read_runs(runs)
    console = Console(highlight=False, markup=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = 1000  # a pipe gets whole lines
    rows = [*comparison.figures(compared), *comparison.different_settings(compared)]
    table = Table("", *(one_line(run.name) for run in compared), box=box.SIMPLE_HEAD, pad_edge=False)
    for name, values in rows:
        table.add_row(one_line(name), *map(one_line, values))
    console.print(table)
    if sentence := comparison.significance(compared, comparison.read_outputs(compared)):
        console.print(one_line(sentence))
    if out:
        comparison.write_comparison(out, compared)
        log(f"{out} written")
