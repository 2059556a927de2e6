"""`transduce average`."""

from pathlib import Path
from typing import Annotated

import typer


def average(
    checkpoints: Annotated[
        list[Path], typer.Argument(help="Checkpoints, model folders or runs; two or more.", metavar="CHECKPOINT")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model folder to write; it must not exist.")],
) -> None:
    """Average the weights of several models into one.

    The models must have the same sizes and the same vocabulary, as the checkpoints of one run have.
    """
    from transduce.errors import ConfigError
    from transduce.models.folder import find_model
    from transduce.training.checkpoint import average_models

    if len(checkpoints) == 1:
        raise ConfigError(f"{checkpoints[0]}: an average needs two or more; name several checkpoints of the run")
    folders = [find_model(path) for path in checkpoints]
    average_models(folders, out)
    print(f"{out}: the mean of {', '.join(map(str, folders))}")
