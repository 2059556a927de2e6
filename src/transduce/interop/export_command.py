"""`transduce export`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import ModelOption


def export(
    to: Annotated[str, typer.Option("--to", help="Format: hf, ctranslate2, argos, onnx or marian.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; it must not exist.")],
    model: ModelOption = None,
    quantization: Annotated[
        str, typer.Option(help="Precision of the weights: float32, or int8 (ctranslate2, argos, marian).")
    ] = "float32",
    source: Annotated[
        str | None, typer.Option("--from", help="Source language, if the export is for one direction.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target language, if the export is for one direction.")] = None,
    sentences: Annotated[
        Path | None,
        typer.Option(help="Text file whose first 100 lines the export is verified with.", show_default="random words"),
    ] = None,
) -> None:
    """Export a translation model to another toolkit.

    The folder appears only if that toolkit (or, if it is not installed, transduce import) computes the same logits and
    greedy outputs for 100 sentences.
    """
    from typing import cast

    from transduce.cli.messages import log
    from transduce.files.files import read_lines
    from transduce.interop.export.export_model import export_model
    from transduce.interop.export.exporter import Quantization
    from transduce.interop.export.verify import SENTENCES
    from transduce.models.folder import find_model

    texts = None
    if sentences is not None:
        texts = [line for line in read_lines(sentences) if line.strip()][:SENTENCES]
    written = export_model(
        find_model(model),
        to,
        out,
        quantization=cast(Quantization, quantization),
        source=source,
        target=target,
        sentences=texts,
    )
    for limit in written.limits:
        log(f"note: {limit}")
    print(f"{out}: {written.title}, verified by {written.verification}")
