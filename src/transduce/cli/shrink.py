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
    from transduce.models.card import find_model, read_card
    from transduce.models.saved import shrink_model

    folder = find_model(model)
    if read_card(folder)["precision"] == "int8":
        raise ConfigError(f"{folder}: the weights are 8-bit already; name a run or model with float32 weights (-m)")
    shrink_model(folder, out)
    print(f"{folder}: {_megabytes(folder)}\n{out}: {_megabytes(out)}")


def _megabytes(folder: Path) -> str:
    from transduce.models.card import MODEL_FILES

    paths = [folder / name for name in MODEL_FILES]
    return f"{sum(path.stat().st_size for path in paths if path.exists()) / 1e6:.2f} MB"
