"""`transduce init`."""

import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from transduce.cli.messages import announce, log
from transduce.cli.options import (
    TASK_HELP,
    ForceOption,
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

_OF_PAIRS = "translate"
"""The task whose training data may be two files."""


def init(
    recipe: Annotated[Path, typer.Argument(help="The file to write.", metavar="RECIPE")] = Path("recipe.toml"),
    task: Annotated[str | None, typer.Option(help=TASK_HELP)] = None,
    src: SrcOption = None,
    tgt: TgtOption = None,
    train: TrainOption = None,
    text: Annotated[list[Path] | None, typer.Option(help="Instead: running text, .txt or .jsonl.")] = None,
    valid_src: ValidSrcOption = None,
    valid_tgt: ValidTgtOption = None,
    valid: ValidOption = None,
    preset: PresetOption = None,
    style: StyleOption = None,
    set_: SetOption = None,
    force: ForceOption = False,
) -> None:
    """Write a recipe, the settings of a run, for `transduce train`.

    The recipe has a comment for each setting. In a terminal, the command asks for the training text, the validation
    text and the size of the model if they are not given. What `transduce train` would refuse is refused. The command
    prints how many pairs and tokens there are, and how long the run will take on this machine; without --preset, it
    chooses the size that suits both.
    """
    from transduce.cli.outputs import refuse_overwriting
    from transduce.config import apply_sets
    from transduce.disk import write_atomically
    from transduce.errors import ConfigError
    from transduce.init.estimate import Cost, cost, recommend, require_examples, text_size
    from transduce.init.recipe_template import recipe_text
    from transduce.training.api import given_settings
    from transduce.training.mistakes import refuse_mistakes
    from transduce.training.resolve import foreign_vocabulary, require_text

    refuse_overwriting(recipe, force=force)
    files: dict[str, Any] = {"src": src, "tgt": tgt, "train": train, "text": text}
    files |= {"valid_src": valid_src, "valid_tgt": valid_tgt, "valid": valid}
    if not (src or tgt or train or text) and sys.stdin.isatty():
        task, preset = _ask(task, preset, files)
    settings = given_settings(None, task, **{name: paths or () for name, paths in files.items()})
    if not settings.get("data", {}).get("train"):
        raise ConfigError("no training text: give --src and --tgt, --train or --text")
    settings = apply_sets(settings, set_ or [])
    _, resolved = recipe_text(recipe, preset, style, settings)
    refuse_mistakes(resolved)
    require_text(resolved)
    require_examples(resolved)
    if resolved.tokenizer.path:
        foreign_vocabulary(Path(resolved.tokenizer.path), resolved.tokenizer.target_path)
    with announce("reading the text, and measuring the speed of this machine"):
        size = text_size(resolved)

        @cache
        def cost_of(name: str) -> Cost | None:
            return cost(recipe_text(recipe, name, style, settings)[1], size)

        chosen = preset or recommend(size, cost_of)
        length = cost_of(chosen)
    text_of_recipe, _ = recipe_text(recipe, chosen, style, settings)
    recipe.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(recipe, text_of_recipe.encode())
    log(f"{size}")
    if length:
        log(f"preset {chosen}{'' if preset else ' (chosen for this text and this machine)'}: {length}")
    log(f"wrote {recipe}; train with: transduce train {recipe}")


def _ask(task: str | None, preset: str | None, files: dict[str, Any]) -> tuple[str, str | None]:
    """Ask for the task, the files and the size; adds the files."""
    from transduce.files.pair_formats import PAIR_FORMATS, format_suffix

    suffixes = {suffix for pair_format in PAIR_FORMATS for suffix in pair_format.suffixes}
    task = task or typer.prompt("What does the model learn (translate, language_model, classify, ...)", _OF_PAIRS)
    for prefix, noun in (("", "Training"), ("valid_", "Validation")):
        default = "" if prefix else None
        again = " (none: press Enter)" if prefix else ""
        if task != _OF_PAIRS:
            path = typer.prompt(f"{noun} data, a file or a folder{again}", default, show_default=False)
        else:
            path = typer.prompt(
                f"{noun} text: a file of both languages, or of the source{again}", default, show_default=False
            )
            if path and format_suffix(Path(path)) not in suffixes:
                target = typer.prompt(f"{noun} text of the target language, line by line")
                files[f"{prefix}src"], files[f"{prefix}tgt"] = [Path(path)], [Path(target)]
                continue
        if path:
            files["valid" if prefix else "train"] = [Path(path)]
    size = preset or typer.prompt("Size of the model (auto, tiny, small, base, big)", "auto")
    return task, None if size == "auto" else size
