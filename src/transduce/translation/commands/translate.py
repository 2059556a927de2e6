"""`transduce translate`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from transduce.cli.messages import announce, log
from transduce.cli.options import (
    DeviceOption,
    EngineOption,
    FromOption,
    ModelsOption,
    ThreadsOption,
    ToOption,
    search_options,
)
from transduce.search.options import SearchOptions


@search_options()
def translate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files to translate (text, .jsonl, .parquet, datasets), or text in quotes.",
            metavar="FILE|TEXT",
            show_default="standard input",
        ),
    ] = None,
    model: ModelsOption = None,
    to: ToOption = None,
    from_: FromOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write: text, or rows in .jsonl, .parquet or .arrow; without suffix, of a dataset, a dataset.",
            show_default="standard output",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Format of documents: docx, html, md, odt, po, srt, tmx, vtt, xliff; or text, one output line for "
            "each input line.",
            metavar="NAME",
            show_default="by the file's name",
        ),
    ] = None,
    retranslate: Annotated[
        bool, typer.Option("--retranslate", help="Translate again what has a translation in the document.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last complete line of --out.")] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Translate only part I of N consecutive parts, e.g. 2/8; the outputs of all parts, concatenated, are "
            "the output without this option.",
            metavar="I/N",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="Column of the text in .jsonl, .parquet and .arrow files and datasets.", show_default="src or text"
        ),
    ] = None,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray", help="Translate each file into one of the same name in the folder --out, with workers of Ray."
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Number of workers of --ray.", min=1, show_default="one per GPU, or per --threads (1) cores"),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Text that every sentence of an output starts with.")] = "",
    glossary: Annotated[
        Path | None, typer.Option(help="Terms and the translations to use: a file of TERM, tab, TRANSLATION lines.")
    ] = None,
    protect: Annotated[
        bool,
        typer.Option(help="Keep addresses, placeholders, file names, numbers with units and emoji unchanged."),
    ] = True,
    protect_pattern: Annotated[
        list[str] | None, typer.Option(help="A regular expression of text to keep unchanged too; may be repeated.")
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Write one JSON object per line: n-best outputs, scores, alignment.")
    ] = False,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Add the confidence of each output and each word to --jsonl.")
    ] = False,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            help="Leave the line of an output below this confidence empty.",
            metavar="<float>",
            min=0,
            max=1,
            show_default=False,
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what happens to each line instead: the text after each stage.")
    ] = False,
    long: Annotated[
        Literal["split", "refuse"], typer.Option(help="How to treat a line with more tokens than the model takes.")
    ] = "split",
    *,
    options: SearchOptions,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Source tokens times beam in one batch.", min=1, show_default="as many as fit")
    ] = None,
) -> None:
    """Translate text, one output line for each input line, or documents.

    An argument that names a file is read; any other is text, unless it looks like the path of a missing file. The
    translation of a document is a document, written to --out or, by default, next to it with the target language in its
    name. A search option that is not given has the value stored with the model, usually the default shown here.

    Of rows, all columns are kept, and the translation is the column tgt.
    """
    from transduce.cli.inputs import STANDARD_INPUT, STANDARD_OUTPUT, as_input, require_utf8, shard_of
    from transduce.cli.outputs import refuse_compression, refuse_overwriting, require_line_output
    from transduce.cli.request_record import request
    from transduce.errors import ConfigError
    from transduce.features import HOOKS
    from transduce.files.pair_formats import has_rows
    from transduce.models.folder import find_model
    from transduce.translation.commands.translate_direction import target_language
    from transduce.translation.commands.translate_documents import check_output, find_documents, translate_documents
    from transduce.translation.commands.translate_lines import explain_lines, translate_lines
    from transduce.translation.stages.glossary import Glossary

    if options.get("nbest", 1) > 1 and not jsonl:
        raise ConfigError("--nbest needs --jsonl: plain output is one line for each line")
    if confidence and not jsonl:
        raise ConfigError("--confidence needs --jsonl; plain output is text only, which --min-confidence selects")
    if protect_pattern and not protect:
        raise ConfigError("--protect-pattern protects text, but --no-protect is given")
    if explain and (out or jsonl or ray or shard or prefix or min_confidence is not None or long == "refuse"):
        raise ConfigError(
            "--explain prints the steps of lines; leave out --out, --jsonl, --ray, --shard, --prefix, --min-confidence "
            "and --long refuse"
        )
    require_utf8(prefix)
    inputs = [as_input(argument) for argument in arguments or []] or [STANDARD_INPUT]
    documents = find_documents(inputs, format_)
    out = None if out == STANDARD_OUTPUT and not documents else out
    if resume and not (out and arguments):
        raise ConfigError("--resume needs --out and files to read: it continues where the output file ends")
    if out:
        refuse_overwriting(out, inputs)
    if documents and (ray or shard or column):
        raise ConfigError("--ray, --shard and --column work with lines and rows, not with documents")
    if documents and explain:
        raise ConfigError("--explain works with lines and rows, not with documents")
    if documents and (jsonl or resume or prefix or min_confidence is not None or long == "refuse"):
        raise ConfigError(
            "--jsonl, --resume, --prefix, --min-confidence and --long refuse work with text, not with documents"
        )
    if column and not any(isinstance(one, Path) and has_rows(one) for one in inputs):
        raise ConfigError("--column names a column of .jsonl, .parquet and .arrow files and datasets, not of text")
    if retranslate and not documents:
        raise ConfigError("--retranslate needs a document; a text file has no translations")
    if workers and not ray:
        raise ConfigError("--workers is the number of workers of --ray; give --threads for the threads of this process")
    if ray:
        given = {"--jsonl": jsonl, "--shard": shard, "--min-confidence": min_confidence is not None}
        refused = [name for name, value in (given | {"--long refuse": long == "refuse"}).items() if value]
        if refused:
            raise ConfigError(f"--ray does not support {', '.join(refused)}")
        loading = {
            "model": model,
            "device": device,
            "engine": engine,
            "batch_tokens": batch_tokens,
            "protect": (protect_pattern or []) if protect else False,
            "prefix": prefix,
            "glossary": Glossary.load(glossary) if glossary else None,
        }
        HOOKS["translate_with_ray"](
            inputs, out, loading, options, from_, to, column=column, resume=resume, workers=workers, threads=threads
        )
        return
    if out and documents:
        refuse_compression(out)
        check_output(out, documents)
    elif out:
        require_line_output(out, rows=True, markup=format_ == "text")
    part = shard_of(inputs, shard) if shard else None
    paths: list[Path | None] = [*model] if model else [None]
    folders = [find_model(path) for path in paths]
    for path, folder in zip(paths, folders, strict=True):
        if path and folder.parent.name == "checkpoints" and folder != path:
            log(f"{path} is not finished; using its newest checkpoint, {folder.name}")
    with announce("loading the model"):
        from transduce.translation.translator import Translator

        translator = Translator.load(
            folders,
            device=device,
            engine=engine,
            threads=threads,
            batch_tokens=batch_tokens,
            protect=(protect_pattern or []) if protect else False,
            **options,
        )
    to = target_language(translator.languages, inputs, from_, to)
    confidence = confidence or min_confidence is not None
    if confidence:
        translator.calibration(to)
    if sys.stderr.isatty() or len(folders) > 1 or translator.engine_for(translator.config) is not translator.engine:
        log(f"engine {translator.describe_engine()}")
    terms = Glossary.load(glossary) if glossary else None
    if explain:
        explain_lines(translator, inputs, column, to=to, glossary=terms)
        return
    if documents:
        translate_documents(translator, documents, out, to=to, source=from_, glossary=terms, retranslate=retranslate)
        return
    translate_lines(
        translator,
        inputs,
        out,
        shard=part,
        column=column,
        resume=resume,
        jsonl=jsonl,
        min_confidence=min_confidence,
        to=to,
        glossary=terms,
        prefix=prefix,
        long=long,
        confidence=confidence,
        asked=request(
            folders,
            to,
            translator.config,
            terms,
            prefix=prefix,
            column=column,
            protection=translator.pipeline.protection and translator.pipeline.protection.patterns,
            confidence=min_confidence,
        ),
    )
