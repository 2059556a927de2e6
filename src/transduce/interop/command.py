"""`transduce export` and `transduce import`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import BUNDLED_MODEL, choice_option, model_option


def export(
    to: Annotated[str, choice_option("Format: {}.", "hf", "ctranslate2", "argos", "onnx", "marian", "web")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; it must not exist.")],
    model: Annotated[
        list[Path] | None,
        model_option("A run or a model folder; a page (web) may have several.", show_default=BUNDLED_MODEL),
    ] = None,
    quantization: Annotated[
        str, typer.Option(help="Precision of the weights: float32, or int8 (ctranslate2, argos, marian).")
    ] = "float32",
    source: Annotated[
        str | None, typer.Option("--from", help="Source language, if the export is for one direction.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Target language, if the export is for one direction; with web, of --glossary.")
    ] = None,
    glossary: Annotated[
        Path | None, typer.Option(help="Terms that the page (web) uses: a file of TERM, tab, TRANSLATION lines.")
    ] = None,
    sentences: Annotated[
        Path | None,
        typer.Option(help="Text file whose first 100 lines the export is verified with.", show_default="random words"),
    ] = None,
) -> None:
    """Export a model to another toolkit, or models as a page.

    The folder of another toolkit appears only if that toolkit (or, if it is not installed, transduce import) computes
    the same logits and greedy outputs for 100 sentences. With --to web, the folder is a page that translates, or
    continues texts with a language model, in the browser, without a server; any web space can hold it.
    """
    if to == "web":
        others: dict[str, object] = {
            "--quantization": quantization != "float32",
            "--from": source,
            "--target": target and not glossary,
        }
        _export_page(model or [None], out, (target or "", glossary) if glossary else None, others)
        return
    from transduce.cli.messages import log
    from transduce.errors import ConfigError
    from transduce.files.files import read_lines
    from transduce.interop.export_model import SENTENCES, export_model
    from transduce.models.folder import find_model

    if glossary or len(model or []) > 1:
        raise ConfigError(f"{'--glossary is' if glossary else 'several models are'} only for --to web; leave it out")
    texts = None
    if sentences is not None:
        texts = [line for line in read_lines(sentences) if line.strip()][:SENTENCES]
    written = export_model(
        find_model(model[0] if model else None),
        to,
        out,
        quantization=quantization,
        source=source,
        target=target,
        sentences=texts,
    )
    for limit in written.limits:
        log(f"note: {limit}")
    print(f"{out}: {written.title}, verified by {written.verification}")


def _export_page(
    models: Sequence[Path | None], out: Path, glossary: tuple[str, Path] | None, others: dict[str, object]
) -> None:
    from transduce.errors import ConfigError
    from transduce.features import HOOKS
    from transduce.models.folder import find_model

    if without_effect := [name for name, value in others.items() if value]:
        raise ConfigError(f"{without_effect[0]} has no effect with --to web; leave it out")
    folders = [find_model(model) for model in models]
    names = [(model or folder).resolve().name for model, folder in zip(models, folders, strict=True)]
    site = HOOKS["export_site"](list(zip(names, folders, strict=True)), out, glossary)
    size = f"{site.files} files, {site.bytes / 1e6:.1f} MB, of which a browser loads {site.download / 1e6:.1f} MB"
    print(f"{out}: a page that {site.purpose}: {size}\ntry it: python -m http.server -d {out}")


def import_model(
    path: Annotated[
        Path,
        typer.Argument(
            help="A Hugging Face folder (config.json, model.safetensors), a .gguf or .argosmodel file, a folder of "
            "CTranslate2 or Marian, or what transduce export wrote, except a page (web).",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model folder to write; it must not exist.")],
    source: Annotated[
        str | None, typer.Option("--src-lang", help="Source language of a translation model that does not tell it.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--tgt-lang", help="Target language of a translation model that does not tell it.")
    ] = None,
) -> None:
    """Import public weights as a model folder.

    GPT-2, Llama, BERT, RoBERTa, T5, BART, Marian, ViT and Whisper can be imported. Files of pickles are refused.
    """
    from transduce.errors import ConfigError
    from transduce.files.languages import is_language_code
    from transduce.interop.import_model import import_model as write_imported
    from transduce.models.folder import SHORTLIST, WEIGHTS, read_card
    from transduce.models.weights_file import count_parameters

    direction = (source, target) if source and target else None
    if (source or target) and not (direction and all(map(is_language_code, direction))):
        raise ConfigError("--src-lang and --tgt-lang are needed together, each a code such as en or pt-BR")
    write_imported(path, out, direction=direction)
    card = read_card(out)
    facts = card["facts"]
    parameters = count_parameters(out / WEIGHTS, card["precision"])
    origin, task = facts.get("imported", "an export of transduce"), facts.get("task", "translate")
    print(f"{out}: {origin}, {parameters / 1e6:.1f} million parameters, task {task}")
    if (out / SHORTLIST).exists():
        use = "--shortlist of translate, evaluate and serve uses it (engine native)"
        print(f"{out / SHORTLIST}: the model's lexical shortlist; {use}")
