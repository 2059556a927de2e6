"""`transduce train`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.messages import announce, ended_by_signals
from transduce.cli.options import (
    TASK_HELP,
    PresetOption,
    SetOption,
    SrcOption,
    StyleOption,
    TgtOption,
    TrainOption,
    ValidOption,
    ValidSrcOption,
    ValidTgtOption,
)


def train(
    recipe: Annotated[
        Path | None,
        typer.Argument(help="A TOML file with settings; with --task, training text is possible too.", metavar="RECIPE"),
    ] = None,
    task: Annotated[str | None, typer.Option(help=TASK_HELP, show_default="as in the recipe")] = None,
    src: SrcOption = None,
    tgt: TgtOption = None,
    train: TrainOption = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(
            help="Instead: running text, .txt or .jsonl, for a language model (or masked, denoise); may be repeated."
        ),
    ] = None,
    valid_src: ValidSrcOption = None,
    valid_tgt: ValidTgtOption = None,
    valid: ValidOption = None,
    preset: PresetOption = None,
    style: StyleOption = None,
    start_from: Annotated[
        str | None,
        typer.Option(
            help="Fine-tuning: start from the weights, sizes and vocabulary of a run or a model folder, or of the "
            "bundled model (bundled)."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the run; an existing run is resumed.", show_default="runs/RECIPE"),
    ] = None,
    set_: SetOption = None,
    profile: Annotated[bool, typer.Option("--profile", help="Profile a few steps and write to OUT/profile.")] = False,
) -> None:
    """Train a model from sentence pairs or running text (--text).

    Files may be compressed: .gz, .xz or .zst. The folder of the run holds checkpoints, metrics, report.html and, when
    training ends, the model. Ctrl-C saves a checkpoint and stops; run the same command again to resume.
    """
    from transduce.errors import ConfigError
    from transduce.files.pair_formats import PAIR_FORMATS, format_suffix

    suffixes = {".txt", *(suffix for pair_format in PAIR_FORMATS for suffix in pair_format.suffixes)}
    if recipe and not task and format_suffix(recipe) in suffixes:
        raise ConfigError(f"{recipe} is not a recipe (.toml); give pairs with --train, or running text with --text")
    with ended_by_signals(), announce("loading PyTorch"):
        from transduce.training.api import train as run

    if task and recipe and recipe.suffix != ".toml":
        train, recipe = [recipe, *(train or [])], None
    if out is None:
        from transduce.training.recipe import default_run_folder

        if recipe is None:
            raise ConfigError("there is no folder for the run; give --out, e.g. --out runs/first")
        out = default_run_folder(recipe)
    outcome = run(
        out,
        recipe=recipe,
        task=task,
        src=src or (),
        tgt=tgt or (),
        train=train or (),
        text=text or (),
        valid_src=valid_src or (),
        valid_tgt=valid_tgt or (),
        valid=valid or (),
        preset=preset,
        style=style,
        start_from=start_from,
        sets=set_ or (),
        profile=profile,
    )
    if outcome.stop_signal is not None:
        raise typer.Exit(128 + outcome.stop_signal)
