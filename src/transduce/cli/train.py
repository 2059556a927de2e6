"""`transduce train`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.loading import ended_by_signals


def train(
    recipe: Annotated[Path | None, typer.Argument(help="A TOML file with settings.", metavar="[RECIPE]")] = None,
    src: Annotated[list[Path] | None, typer.Option(help="Source text, a sentence a line; may be repeated.")] = None,
    tgt: Annotated[list[Path] | None, typer.Option(help="Its translation, line by line.")] = None,
    train: Annotated[list[Path] | None, typer.Option(help="Both in one file: .tsv or .jsonl (src, tgt).")] = None,
    valid_src: Annotated[list[Path] | None, typer.Option(help="Source text to judge the model by.")] = None,
    valid_tgt: Annotated[list[Path] | None, typer.Option(help="Its translation.")] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="Both in one file.")] = None,
    preset: Annotated[str | None, typer.Option(help="Size of the model: tiny, small, base or big.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run, runs/RECIPE if not given; a run there is resumed.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any setting (docs/settings.md), e.g. train.steps=2000.", metavar="SECTION.KEY=VALUE"
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Record where the time of a few steps goes, into OUT/profile.")
    ] = False,
) -> None:
    """Train a model from pairs of sentences.

    Files may be plain or end in .gz, .xz or .zst. The run's folder gets checkpoints, metrics, a report.html to look at
    and, in the end, the model. Ctrl-C saves and stops; run the same command to
    resume.
    """
    from transduce.errors import ConfigError

    with ended_by_signals():
        from transduce.training.api import train as run

    if out is None:
        if recipe is None:
            raise ConfigError("where should the run go? Give --out, e.g. --out runs/first")
        out = Path("runs") / recipe.stem
    outcome = run(
        out,
        recipe=recipe,
        src=src or (),
        tgt=tgt or (),
        train=train or (),
        valid_src=valid_src or (),
        valid_tgt=valid_tgt or (),
        valid=valid or (),
        preset=preset,
        sets=set_ or (),
        profile=profile,
    )
    if outcome.stop_signal is not None:
        raise typer.Exit(128 + outcome.stop_signal)
