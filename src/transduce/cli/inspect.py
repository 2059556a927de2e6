"""`transduce inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import ModelOption


def inspect(
    text: Annotated[str, typer.Argument(help="A sentence to translate.")],
    model: ModelOption = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("look.html"),
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step [4].")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="More favours longer outputs [0.6].")] = None,
    prefix: Annotated[str, typer.Option(help="What the output must begin with.")] = "",
    off: Annotated[
        list[str] | None, typer.Option(help="A head to switch off, e.g. cross.1.2.", metavar="STACK.LAYER.HEAD")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda ...")] = "auto",
) -> None:
    """Look inside a translation: attention, search, probabilities, as one page that opens anywhere, offline."""
    from transduce.inspect.inspection import InspectionRequest, inspect_translation
    from transduce.inspect.page import self_contained
    from transduce.translator import Translator

    translator = Translator.load(model, device=device, engine="plain")
    request = InspectionRequest(
        text=text,
        beam=beam,
        length_penalty=length_penalty,
        prefix=translator.tokenizer.encode(prefix) if prefix else [],
        off=off or [],
    )
    inspection = inspect_translation(translator, request)
    out.write_text(self_contained(inspection, translator), encoding="utf-8")
    print(f"{text}\n→ {translator.tokenizer.decode(inspection.best.tokens)}\nwrote {out}: open it in a browser")
