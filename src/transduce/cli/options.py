"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ModelOption = Annotated[
    Path | None,
    typer.Option("--model", "-m", help="A run, or a model folder; if none, the bundled model (English to German)."),
]
