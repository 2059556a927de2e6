"""`transduce inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import DeviceOption, ModelOption, ToOption, search_options
from transduce.search.options import SearchOptions


@search_options("beam", "length_penalty", "max_extra", "max_length", "min_length", "no_repeat")
def inspect(
    text: Annotated[str, typer.Argument(help="A sentence to translate.")],
    model: ModelOption = None,
    to: ToOption = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML page to write.")] = Path("look.html"),
    *,
    options: SearchOptions,
    prefix: Annotated[str, typer.Option(help="Text that the output starts with.")] = "",
    off: Annotated[
        list[str] | None,
        typer.Option(help="Attention head to disable, e.g. cross.1.2; may be repeated.", metavar="STACK.LAYER.HEAD"),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Write an HTML page that shows how a sentence is translated.

    The page shows attention, beam search and probabilities; it is self-contained and opens offline. A search option
    that is not given has the value stored with the model, usually the default shown here.
    """
    from transduce.inspect.inspection import InspectionRequest, inspect_translation
    from transduce.inspect.page import self_contained
    from transduce.translator import Translator

    translator = Translator.load(model, device=device, engine="plain", **options)
    forced = translator.tokenizer.target.encode(prefix) if prefix else []
    request = InspectionRequest(text=text, to=to, prefix=forced, off=off or [])
    result = inspect_translation(translator, request)
    out.write_text(self_contained(result, translator), encoding="utf-8")
    print(f"{text}\n→ {translator.tokenizer.decode(result.best.tokens)}\nwrote {out}: open it in a browser")
