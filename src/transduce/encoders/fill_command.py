"""`transduce fill`."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import DeviceOption, ThreadsOption

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def fill(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text with <mask> in place of a token, in quotes; may be repeated.",
            metavar="TEXT",
            show_default="each line of standard input",
        ),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help="A run or a model folder of the task masked.")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of tokens for each mask.", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object per text.")] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Print the most likely tokens in place of each <mask>, with their probabilities and the text.

    The columns are separated by tabs. An empty line follows each mask but the last.
    """
    from transduce.cli.inputs import STANDARD_INPUT, require_utf8
    from transduce.encoders.text_encoder import TextEncoder
    from transduce.errors import ConfigError
    from transduce.files.files import read_lines

    if model is None:
        raise ConfigError("name a model with -m; train one with: transduce train --task masked --text lines.txt")
    encoder = TextEncoder.load(model, device=device, threads=threads)
    written = False
    for text in map(require_utf8, texts) if texts is not None else read_lines(STANDARD_INPUT):
        masks = encoder.fill(text, top=top)
        if as_json:
            record = {"text": text, "masks": [[asdict(one) for one in fillings] for fillings in masks]}
            print(json.dumps(record, ensure_ascii=False))
            continue
        for fillings in masks:
            if written:
                print()
            for one in fillings:
                print(f"{one.probability:.4f}\t{_column(one.token)}\t{_column(one.text)}")
            written = True


def _column(text: str) -> str:
    """A text in which control characters, which might end its column or its line, are escaped."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
