"""`transduce translate`."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from transduce.cli.inputs import STANDARD_INPUT, STANDARD_OUTPUT, Input, as_input, require_utf8, rows_of, shard_of
from transduce.cli.messages import announce, log
from transduce.cli.options import (
    Conflict,
    EngineOptions,
    ForceOption,
    FromOption,
    ModelsOption,
    ToOption,
    option_groups,
    refuse_conflicts,
    search_options,
)
from transduce.cli.outputs import refuse_compression, refuse_overwriting, require_folder_of, require_line_output
from transduce.cli.request_record import request
from transduce.errors import ConfigError
from transduce.features import HOOKS
from transduce.files.document_formats import (
    BINARY_SUFFIXES,
    DOCUMENT_SUFFIXES,
    MARKUP_SUFFIXES,
    TEXT,
    document_format,
    require_format_of,
)
from transduce.files.files import uncompressed
from transduce.files.pair_formats import TSV, has_rows
from transduce.files.parquet import Row
from transduce.files.texts import is_wrapped
from transduce.models.folder import find_model
from transduce.search.options import SearchOptions

if TYPE_CHECKING:
    from transduce.translation.translator import Translator


@dataclass(frozen=True, kw_only=True)
class DocumentOptions:
    """Options of documents."""

    format: Annotated[
        str | None,
        typer.Option(
            help="Format of documents: docx, html, md, odt, pdf, po, srt, tmx, vtt, xliff; or text, one output line "
            "for each input line.",
            metavar="NAME",
            show_default="by the file's name",
        ),
    ] = None
    retranslate: Annotated[
        bool, typer.Option("--retranslate", help="Translate again what has a translation in the document.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """Options of lines and rows."""

    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last complete line of --out.")] = False
    shard: Annotated[
        str | None,
        typer.Option(
            help="Translate only part I of N consecutive parts, e.g. 2/8; the outputs of all parts, concatenated, are "
            "the output without this option.",
            metavar="I/N",
            show_default=False,
        ),
    ] = None
    column: Annotated[
        str | None,
        typer.Option(
            help="Column of the text in .jsonl, .parquet and .arrow files and datasets.", show_default="src or text"
        ),
    ] = None
    prefix: Annotated[str, typer.Option(help="Text that every sentence of an output starts with.")] = ""
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Write one JSON object per line: n-best outputs, scores, alignment.")
    ] = False
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Add the confidence of each output and each word to --jsonl.")
    ] = False
    min_confidence: Annotated[
        float | None,
        typer.Option(
            help="Leave the line of an output below this confidence empty.",
            metavar="<float>",
            min=0,
            max=1,
            show_default=False,
        ),
    ] = None
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what happens to each line instead: the text after each stage.")
    ] = False
    long: Annotated[
        Literal["split", "refuse"], typer.Option(help="How to treat a line with more tokens than the model takes.")
    ] = "split"

    @property
    def needs_confidence(self) -> bool:
        return self.confidence or self.min_confidence is not None


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Options of the text pipeline."""

    glossary: Annotated[
        Path | None, typer.Option(help="Terms and the translations to use: a file of TERM, tab, TRANSLATION lines.")
    ] = None
    protect: Annotated[
        bool, typer.Option(help="Keep addresses, placeholders, file names, numbers with units and emoji unchanged.")
    ] = True
    protect_pattern: Annotated[
        list[str] | None, typer.Option(help="A regular expression of text to keep unchanged too; may be repeated.")
    ] = None
    formality: Annotated[
        Literal["formal", "informal"] | None,
        typer.Option(help="How the translation addresses its reader, e.g. German Sie or du.", show_default="as it is"),
    ] = None
    locale: Annotated[bool, typer.Option(help="Write numbers, prices and times as the target language does.")] = True

    @property
    def protection(self) -> list[str] | bool:
        """The argument `protect` of `Translator.load`."""
        return (self.protect_pattern or []) if self.protect else False

    @property
    def wording(self) -> dict[str, Any]:
        """The options of `Translator.translate` that these are; a glossary is read from its file."""
        from transduce.translation.stages.glossary import Glossary

        return {
            "glossary": Glossary.load(self.glossary) if self.glossary else None,
            "formality": self.formality,
            "locale": self.locale,
        }


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Options of many machines."""

    ray: Annotated[
        bool,
        typer.Option(
            "--ray", help="Translate each file into one of the same name in the folder --out, with workers of Ray."
        ),
    ] = False
    workers: Annotated[
        int | None,
        typer.Option(help="Number of workers of --ray.", min=1, show_default="one per GPU, or per --threads (1) cores"),
    ] = None


_CONFLICTS = (
    Conflict(
        *("--nbest", "--jsonl", "--confidence", "--min-confidence", "--resume", "--shard", "--column"),
        *("--prefix", "--long refuse", "--explain", "--ray"),
        excludes="documents",
        message="documents do not support {}, only lines and rows do",
    ),
    Conflict("--nbest", needs="--jsonl", message="--nbest needs --jsonl: plain output is one line for each line"),
    Conflict(
        "--confidence",
        needs="--jsonl",
        message="--confidence needs --jsonl; plain output is text only, which --min-confidence selects",
    ),
    Conflict(
        "--protect-pattern",
        excludes="--no-protect",
        message="--protect-pattern protects text, but --no-protect is given",
    ),
    Conflict(
        *("--out", "--jsonl", "--ray", "--shard", "--prefix", "--min-confidence", "--long refuse"),
        excludes="--explain",
        message="--explain prints the steps of lines; leave out --out, --jsonl, --ray, --shard, --prefix, "
        "--min-confidence and --long refuse",
    ),
    Conflict(
        "--resume",
        needs="an output and files",
        message="--resume needs --out and files to read: it continues where the output file ends",
    ),
    Conflict(
        "--column",
        needs="rows",
        message="--column names a column of .jsonl, .parquet and .arrow files and datasets, not of text",
    ),
    Conflict(
        "--retranslate", needs="documents", message="--retranslate needs a document; a text file has no translations"
    ),
    Conflict(
        "--workers",
        needs="--ray",
        message="--workers is the number of workers of --ray; give --threads for the threads of this process",
    ),
    Conflict(
        *("--jsonl", "--shard", "--min-confidence", "--long refuse"),
        excludes="--ray",
        message="--ray does not support {}",
    ),
)


@search_options()
@option_groups
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
            help="File to write: text, or rows in .jsonl, .parquet, .arrow or a dataset; or a folder for documents.",
            show_default="standard output",
        ),
    ] = None,
    force: ForceOption = False,
    *,
    of_documents: DocumentOptions,
    of_lines: LineOptions,
    of_text: TextOptions,
    of_ray: RayOptions,
    options: SearchOptions,
    of_engine: EngineOptions,
) -> None:
    """Translate text, line by line, or documents.

    An argument that names a file is read; any other is text, unless it looks like the path of a missing file. The
    translation of a document is a document, written to --out or, by default, next to it with the target language in its
    name. An existing file is replaced only with --force. A search option that is not given has the value stored
    with the model, usually the default shown here.

    Rows in .jsonl (without --jsonl), .parquet or .arrow keep all columns, and the translation is the column tgt.
    """
    require_utf8(of_lines.prefix)
    inputs = _read_arguments(arguments or [])
    documents = _find_documents(inputs, of_documents.format)
    out = None if out == STANDARD_OUTPUT and not documents else out
    _refuse_options(arguments, inputs, documents, out, options, of_documents, of_lines, of_text, of_ray)
    if out and not of_ray.ray:
        refuse_overwriting(out, inputs, force=force, resume=of_lines.resume, resumable=not documents)
    wording = of_text.wording
    loading = {
        "device": of_engine.device,
        "engine": of_engine.engine,
        "batch_tokens": of_engine.batch_tokens,
        "protect": of_text.protection,
    }
    if of_ray.ray:
        HOOKS["translate_with_ray"](
            inputs,
            out,
            {**loading, "model": model, "prefix": of_lines.prefix, **wording},
            options,
            from_,
            to,
            column=of_lines.column,
            resume=of_lines.resume,
            force=force,
            workers=of_ray.workers,
            threads=of_engine.threads,
        )
        return
    if out and documents:
        refuse_compression(out)
        _check_output(out, documents)
    elif out:
        require_line_output(out, rows=True, markup=of_documents.format == "text")
    shard = shard_of(inputs, of_lines.shard) if of_lines.shard else None
    folders = _find_models(model)
    with announce("loading the model"):
        from transduce.translation.commands.direction import detected_source, sampled, target_language, target_of_line
        from transduce.translation.commands.translate_lines import explain_lines, translate_lines
        from transduce.translation.translator import Translator

        translator = Translator.load(folders, threads=of_engine.threads, **loading, **options)  # type: ignore[arg-type]
    named, rows, sample = to, rows_of(inputs, of_lines.column), ""
    typed = inputs == [STANDARD_INPUT] and sys.stdin.isatty()
    if not documents and not typed:
        sample, rows = sampled(rows if of_documents.format else _note_wrapped(rows))
    languages = translator.languages
    to = target_language(languages, inputs, from_, to, lambda: detected_source(languages, sample, named, translator))
    if of_lines.needs_confidence:
        translator.calibration(to)
    if sys.stderr.isatty() or len(folders) > 1 or translator.engine_for(translator.config) is not translator.engine:
        log(f"engine {translator.describe_engine()}")
    if of_lines.explain:
        explain_lines(translator, rows, to=to, **wording)
    elif documents:
        of_files = {"source": from_, "retranslate": of_documents.retranslate, "force": force}
        HOOKS["translate_documents"](translator, documents, out, to=to, **of_files, **wording)
    else:
        typed_to = (lambda text: target_of_line(translator, text, named, to)) if typed and not from_ else None
        record = _record(translator, folders, to, wording, of_lines)
        translate_lines(translator, inputs, rows, out, of_lines, shard, to, typed_to, wording, record)


def _read_arguments(arguments: Sequence[str]) -> list[Input]:
    inputs = [as_input(argument) for argument in arguments] or [STANDARD_INPUT]
    if len(inputs) > 2 and all(isinstance(text, str) and " " not in text for text in inputs):
        log(f"{len(inputs)} words are translated one by one; put a sentence in quotes")
    return inputs


def _note_wrapped(rows: Iterator[tuple[str, Row]]) -> Iterator[tuple[str, Row]]:
    """The rows, with a note if sentences continue in the next of the first lines."""
    first = list(islice(rows, 30))
    if is_wrapped([text for text, _ in first]):
        log("each line is translated by itself, but sentences seem to continue in the next; --format md joins them")
    return chain(first, rows)


def _find_models(models: Sequence[Path] | None) -> list[Path]:
    """The folders of models, with a message about those that are not finished; the bundled model if there are none."""
    folders = [find_model(path) for path in models] if models else [find_model(None)]
    for path, folder in zip(models or [], folders, strict=False):
        if folder.parent.name == "checkpoints" and folder != path:
            log(f"{path} is not finished; using its newest checkpoint, {folder.name}")
    return folders


def _record(
    translator: "Translator", folders: Sequence[Path], to: str | None, wording: dict[str, Any], options: LineOptions
) -> dict[str, str]:
    """What a translation that is resumed must have in common with the one that began."""
    protection = translator.pipeline.protection
    return request(
        folders,
        to,
        translator.config,
        wording,
        prefix=options.prefix,
        column=options.column,
        protection=protection and protection.patterns,
        confidence=options.min_confidence,
    )


def _refuse_options(
    arguments: Sequence[str] | None,
    inputs: Sequence[Input],
    documents: Sequence[tuple[Path, str]],
    out: Path | None,
    options: SearchOptions,
    of_documents: DocumentOptions,
    of_lines: LineOptions,
    of_text: TextOptions,
    of_ray: RayOptions,
) -> None:
    """Raise an error if options do not fit together or the inputs."""
    refuse_conflicts(
        _CONFLICTS,
        {
            "--out": out,
            "--nbest": options.get("nbest", 1) > 1,
            "--long refuse": of_lines.long == "refuse",
            "--min-confidence": of_lines.min_confidence is not None,
            "--no-protect": not of_text.protect,
            "documents": documents,
            "rows": any(isinstance(path, Path) and has_rows(path) for path in inputs),
            "an output and files": out and arguments,
        },
        of_documents,
        of_lines,
        of_text,
        of_ray,
    )


def _find_documents(inputs: Sequence[Input], format_: str | None) -> list[tuple[Path, str]]:
    """The documents among the inputs, each with the name of its format; either all inputs are documents or none.

    Text files are not among them: they are read and written as a stream of lines.
    """
    if format_ not in (None, *DOCUMENT_SUFFIXES):
        raise ConfigError(f"--format {format_} is not known; use one of {', '.join(DOCUMENT_SUFFIXES)}")
    if format_ == TEXT:
        return []
    documents, others = [], []
    for item in inputs:
        if isinstance(item, Path) and not format_:
            _require_known_format(item)
        if format_ and isinstance(item, str):
            raise ConfigError(
                f"--format {format_} is for files and standard input, and {item:.60} is text; "
                f"pipe it in: echo TEXT | transduce translate --format {format_}"
            )
        name = format_ or (document_format(uncompressed(item)) if isinstance(item, Path) else None)
        if isinstance(item, Path) and name not in (None, TEXT):
            assert name
            documents.append((item, name))
        else:
            others.append(str(item) if isinstance(item, Path) else f"{item:.60}")
    if documents and others:
        raise ConfigError(f"{others[0]} is text, {documents[0][0]} is a document; translate them separately")
    return documents


def _require_known_format(path: Path) -> None:
    """Raise an error if the name of a file tells a format that is not translated."""
    suffix = uncompressed(path).suffix.lower()
    if suffix in TSV.suffixes:
        raise ConfigError(
            f"{path}: the columns of a {suffix} file are not told apart; give the column to translate as text, e.g. "
            f"cut -f1 {path} | transduce translate, or --format text to translate every line with all its columns"
        )
    if suffix in BINARY_SUFFIXES | MARKUP_SUFFIXES:
        raise ConfigError(
            f"{path}: {suffix} files are not translated; convert it, e.g. to .docx, .html or .txt, or give "
            "--format text to translate every line of it, markup included"
        )


def _check_output(out: Path, documents: Sequence[tuple[Path, str]]) -> None:
    if out.is_dir():
        if any(path == STANDARD_INPUT for path, _ in documents):
            raise ConfigError(f"--out {out} is a folder; name a file for the document from standard input")
        return
    for path, name in documents:
        require_format_of(path, name, out)
    require_folder_of(out)
