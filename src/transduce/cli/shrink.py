"""`transduce shrink`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import ModelOption


def shrink(
    out: Annotated[Path, typer.Option("--out", "-o", help="Model folder to write; it must not exist.")],
    model: ModelOption = None,
) -> None:
    """Store the weights of a model in 8 bits.

    The folder has a quarter of the size; the translations of the native engine stay the same.
    """
    from transduce.errors import ConfigError
    from transduce.models.folder import find_model, read_card

    folder = find_model(model)
    if read_card(folder)["precision"] == "int8":
        raise ConfigError(f"{folder}: the weights are 8-bit already; name a run or model with float32 weights (-m)")
    shrink_model(folder, out)
    print(f"{folder}: {_megabytes(folder)}\n{out}: {_megabytes(out)}")


def shrink_model(folder: Path, out: Path) -> None:
    """Write a model folder with 8-bit weights, and its README and shortlist, atomically as a new folder."""
    from transduce.disk import atomic_folder
    from transduce.errors import ModelError
    from transduce.fast.native.shortlist import model_shortlist
    from transduce.models.folder import NOTES, read_model, read_notes, save_model

    if out.exists():
        raise ModelError(f"{out} exists already; name a folder that does not")
    model = read_model(folder)
    with atomic_folder(out) as work:
        save_model(work, model.module(), model.tokenizer, model.facts, precision="int8")
        if notes := read_notes(folder):
            (work / NOTES).write_text(notes, encoding="utf-8")
        if shortlist := model_shortlist(model):
            shortlist.save(work, model.tokenizer)


def _megabytes(folder: Path) -> str:
    from transduce.models.folder import MODEL_FILES

    paths = [folder / name for name in MODEL_FILES]
    return f"{sum(path.stat().st_size for path in paths if path.exists()) / 1e6:.2f} MB"
