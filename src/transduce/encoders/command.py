"""`transduce fill` and `transduce embed`."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.messages import warn_of_cut_texts
from transduce.cli.options import DeviceOption, ForceOption, ThreadsOption, choice_option, model_option, text_argument

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_AT_ONCE = 4096
"""Texts that are encoded, and written, together."""
_DIGITS = 7


def fill(
    texts: Annotated[
        list[str] | None, text_argument("Text with <mask> in place of a token, in quotes; may be repeated.")
    ] = None,
    model: Annotated[Path | None, model_option("A run or a model folder of the task masked.")] = None,
    top: Annotated[int, typer.Option(help="Number of tokens for each mask.", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object per text.")] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Print the most likely tokens in place of each <mask>.

    The columns are the token, its probability and the text, separated by tabs. An empty line follows each mask but the
    last.
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
            record = {"text": text, "masks": [[asdict(filling) for filling in fillings] for fillings in masks]}
            print(json.dumps(record, ensure_ascii=False))
            continue
        for fillings in masks:
            if written:
                print()
            for filling in fillings:
                print(f"{filling.probability:.4f}\t{_column(filling.token)}\t{_column(filling.text)}")
            written = True


def _column(text: str) -> str:
    """A text in which control characters, which might end its column or its line, are escaped."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def embed(
    texts: Annotated[
        list[str] | None,
        text_argument("Text in quotes, or a file with a text on each line; may be repeated.", "TEXT_OR_FILE"),
    ] = None,
    model: Annotated[Path | None, model_option("A run or a model folder of the architecture encoder_only.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write: .npy with an array of one row per text, or .jsonl.",
            show_default="JSONL to standard output",
        ),
    ] = None,
    force: ForceOption = False,
    device: DeviceOption = "auto",
    engine: Annotated[str, choice_option("Engine to run: {} (the fastest).", "native", "plain", "auto")] = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Write a vector for each text, in the order of the texts.

    It is the mean of the vectors of the tokens, scaled to length 1. An imported model of sentence-transformers may take
    the first, the last or the largest numbers instead.
    """
    from transduce.errors import ConfigError

    if model is None:
        raise ConfigError("name a model with -m; train one with: transduce train --task masked --text lines.txt")
    if out and out.suffix not in (".npy", ".jsonl"):
        raise ConfigError(f"{out}: end the name in .npy or .jsonl")
    import numpy as np

    from transduce.cli.inputs import STANDARD_INPUT, as_input, lines_of
    from transduce.cli.outputs import refuse_overwriting, require_file_output
    from transduce.disk import atomic_file
    from transduce.encoders.text_encoder import TextEncoder, Vectors

    inputs = [as_input(text, "embed") for text in texts] if texts is not None else [STANDARD_INPUT]
    if out:
        refuse_overwriting(out, inputs, force=force)
        require_file_output(out)
    lines = lines_of(inputs)
    encoder = TextEncoder.load(model, device=device, engine=engine, threads=threads)

    def chunks() -> Iterator[tuple[list[str], Vectors]]:
        while chunk := list(islice(lines, _AT_ONCE)):
            yield chunk, encoder.embed(chunk)

    def rows() -> Iterator[str]:
        for chunk, vectors_BD in chunks():
            for text, vector in zip(chunk, vectors_BD.tolist(), strict=True):
                record = {"text": text, "vector": [round(number, _DIGITS) for number in vector]}
                yield json.dumps(record, ensure_ascii=False) + "\n"

    if out is None:
        sys.stdout.writelines(rows())
        warn_of_cut_texts(encoder.texts_cut, encoder.max_length)
        return
    with atomic_file(out) as work:
        if out.suffix == ".jsonl":
            with work.open("w", encoding="utf-8") as file:
                file.writelines(rows())
        else:
            width = encoder.model.config.d_model
            vectors = np.concatenate([np.zeros((0, width), np.float32), *(vectors for _, vectors in chunks())])
            with work.open("wb") as binary:
                np.save(binary, vectors)
    warn_of_cut_texts(encoder.texts_cut, encoder.max_length)
