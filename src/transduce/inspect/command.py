"""`transduce inspect`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import DeviceOption, ForceOption, ModelOption, ToOption, search_options
from transduce.search.options import SearchOptions

Inspector = Callable[[str], tuple[bytes, str | None]]
"""The serialized inspection of a text, and its translation; None if the model only reads texts."""
_PAGE = Path("look.html")


@search_options("beam", "length_penalty", "max_extra", "max_length", "min_length", "no_repeat")
def inspect(
    text: Annotated[
        str,
        typer.Argument(help="A sentence to translate, or a text that the model reads; with --site, a file of them."),
    ],
    model: ModelOption = None,
    to: ToOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML page to write.", show_default=str(_PAGE))
    ] = None,
    force: ForceOption = False,
    site: Annotated[
        Path | None,
        typer.Option(help="New folder for a site that needs no server, with a page for each line of the file TEXT."),
    ] = None,
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

    With --site, a line of the file may have, after a tab, what its page shows first: the part of a page's address after
    the #, such as stack=encoder&question=it>animal.
    """
    from transduce.cli.outputs import refuse_overwriting, require_file_output
    from transduce.errors import ConfigError
    from transduce.inspect.page import self_contained
    from transduce.models.folder import find_model, read_card

    if site is None:
        out = out or _PAGE
        require_file_output(out)
        refuse_overwriting(out, force=force)
    elif out:
        raise ConfigError("--site writes a folder of pages, --out a page; leave out one of them")
    load: Callable[[], Inspector]
    architecture = read_card(find_model(model))["architecture"]
    if architecture in ("decoder_only", "encoder_only"):
        translating = [*options, *(name for name, value in (("to", to), ("prefix", prefix), ("off", off)) if value)]
        if translating:
            option = translating[0].replace("_", "-")
            raise ConfigError(f"--{option} is for translation models, but the model's architecture is {architecture}")
        load = partial(_text_inspector, model, architecture, device)
    else:
        load = partial(_translation_inspector, model, to, options, prefix, off or [], device)
    if site is not None:
        count = _write_site(site, Path(text), load)
        print(f"wrote {count} pages: open {site / 'index.html'} in a browser, or put the folder on any web space")
        return
    assert out
    data, translation = load()(text)
    out.write_text(self_contained(data), encoding="utf-8")
    print(
        "\n".join([text, *([] if translation is None else [f"→ {translation}"]), f"wrote {out}: open it in a browser"])
    )


def _write_site(folder: Path, file: Path, load: Callable[[], Inspector]) -> int:
    """Write the pages of a file's lines, and return their number."""
    from transduce.cli.inputs import lines_of
    from transduce.errors import ConfigError, DataError, TransduceError
    from transduce.inspect.page import write_site

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--site {folder} exists already; name a new folder")
    lines = [line.partition("\t") for line in lines_of([file]) if line.strip()]
    if not lines:
        raise DataError(f"{file} has no sentences")
    inspector, results = load(), list[tuple[bytes, str | None]]()
    for number, (text, _, _) in enumerate(lines, 1):
        try:
            results.append(inspector(text))
        except TransduceError as error:
            raise DataError(f"{file}, sentence {number}: {error}") from None
    texts = [(text, translation or "") for (text, _, _), (_, translation) in zip(lines, results, strict=True)]
    write_site(folder, texts, [(data, view) for (_, _, view), (data, _) in zip(lines, results, strict=True)])
    return len(results)


def _translation_inspector(
    model: Path | None, to: str | None, options: SearchOptions, prefix: str, off: list[str], device: str
) -> Inspector:
    from transduce.cli.inputs import require_utf8
    from transduce.inspect.inspection import inspect_translation
    from transduce.inspect.request import InspectionRequest
    from transduce.inspect.serialize import serialize, translation_text
    from transduce.translation.translator import Translator

    translator = Translator.load(model, device=device, engine="plain", **options)
    forced = translator.tokenizer.target.encode(require_utf8(prefix)) if prefix else []

    def inspected(text: str) -> tuple[bytes, str]:
        result = inspect_translation(translator, InspectionRequest(text=text, to=to, prefix=forced, off=off))
        return serialize(result, translator), translation_text(result, result.best.tokens, translator.tokenizer.target)

    return inspected


def _text_inspector(model: Path | None, architecture: str, device: str) -> Inspector:
    from transduce.encoders.text_encoder import TextEncoder
    from transduce.inspect.inspection import inspect_text
    from transduce.inspect.serialize import serialize_text
    from transduce.language_model.generator import Generator

    assert model is not None  # the bundled model translates
    reader: Generator | TextEncoder
    if architecture == "decoder_only":
        reader = Generator.load(model, device=device, engine="plain")
    else:
        reader = TextEncoder.load(model, device=device)
    return lambda text: (serialize_text(inspect_text(reader, text)), None)
