"""`transduce inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import DeviceOption, ModelOption, ToOption, search_options
from transduce.search.options import SearchOptions


@search_options("beam", "length_penalty", "max_extra", "max_length", "min_length", "no_repeat")
def inspect(
    text: Annotated[str, typer.Argument(help="A sentence to translate, or a text that the model reads.")],
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
    """Write an HTML page that shows how a model treats a text.

    Of a translation, the page shows attention, beam search and probabilities; it is self-contained and opens offline.
    Of a language model, it shows attention and the predictions after each token of the text; of an encoder, attention
    and the predictions at <mask>. A search option that is not given has the value stored with the model, usually the
    default shown here.
    """
    from transduce.cli.outputs import require_file_output
    from transduce.errors import ConfigError
    from transduce.models.folder import find_model, read_card

    require_file_output(out)
    architecture = read_card(find_model(model))["architecture"]
    shown = [text]
    if architecture in ("decoder_only", "encoder_only"):
        translating = [*options, *(name for name, value in (("to", to), ("prefix", prefix), ("off", off)) if value)]
        if translating:
            option = translating[0].replace("_", "-")
            raise ConfigError(f"--{option} is for translation models, but the model's architecture is {architecture}")
        page = _text_page(text, model, architecture, device)
    else:
        page, translation = _translation_page(text, model, to, options, prefix, off or [], device)
        shown.append(f"→ {translation}")
    out.write_text(page, encoding="utf-8")
    print("\n".join([*shown, f"wrote {out}: open it in a browser"]))


def _translation_page(
    text: str, model: Path | None, to: str | None, options: SearchOptions, prefix: str, off: list[str], device: str
) -> tuple[str, str]:
    """The page, and the translation."""
    from transduce.cli.inputs import require_utf8
    from transduce.inspect.inspection import inspect_translation
    from transduce.inspect.page import self_contained
    from transduce.inspect.request import InspectionRequest
    from transduce.inspect.serialize import serialize, translation_text
    from transduce.translation.translator import Translator

    translator = Translator.load(model, device=device, engine="plain", **options)
    forced = translator.tokenizer.target.encode(require_utf8(prefix)) if prefix else []
    result = inspect_translation(translator, InspectionRequest(text=text, to=to, prefix=forced, off=off))
    translation = translation_text(result, result.best.tokens, translator.tokenizer.target)
    return self_contained(serialize(result, translator)), translation


def _text_page(text: str, model: Path | None, architecture: str, device: str) -> str:
    from transduce.encoders.text_encoder import TextEncoder
    from transduce.inspect.page import self_contained
    from transduce.inspect.serialize import serialize_text
    from transduce.inspect.text_inspection import inspect_text
    from transduce.language_model.generator import Generator

    assert model is not None  # the bundled model translates
    reader: Generator | TextEncoder
    if architecture == "decoder_only":
        reader = Generator.load(model, device=device, engine="plain")
    else:
        reader = TextEncoder.load(model, device=device)
    return self_contained(serialize_text(inspect_text(reader, text)))
