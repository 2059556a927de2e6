"""`transduce translate` for documents."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.cli.inputs import STANDARD_INPUT, STANDARD_OUTPUT, Input
from transduce.cli.messages import log
from transduce.cli.outputs import require_folder_of
from transduce.disk import write_atomically
from transduce.documents import BINARY_SUFFIXES, DOCUMENT_SUFFIXES, MARKUP_SUFFIXES, TEXT, document_format
from transduce.errors import ConfigError
from transduce.files.files import COMPRESSIONS, read_whole
from transduce.files.pair_formats import TSV, has_rows
from transduce.translation.commands.translate_progress import Progress

if TYPE_CHECKING:
    from transduce.translation.stages.glossary import Glossary
    from transduce.translation.translator import Translator

_MAX_BYTES = 512 << 20


def find_documents(inputs: Sequence[Input], format_: str | None) -> list[tuple[Path, str]]:
    """The documents among the inputs, each with the name of its format; either all inputs are documents or none.

    Text files are not among them: they are read and written as a stream of lines.
    """
    if format_ not in (None, *DOCUMENT_SUFFIXES):
        raise ConfigError(f"--format {format_} is not known; use one of {', '.join(DOCUMENT_SUFFIXES)}")
    if format_ == TEXT:
        return []
    documents, others = [], []
    for one in inputs:
        if isinstance(one, Path) and not format_:
            _require_known_format(one)
        name = format_ or (document_format(_uncompressed(one)) if isinstance(one, Path) else None)
        if isinstance(one, Path) and name not in (None, TEXT):
            assert name
            documents.append((one, name))
        else:
            others.append(str(one) if isinstance(one, Path) else f"{one:.60}")
    if documents and others:
        raise ConfigError(f"{others[0]} is text, {documents[0][0]} is a document; translate them separately")
    return documents


def _require_known_format(path: Path) -> None:
    """Raise an error if the name of a file tells a format that is not translated."""
    suffix = _uncompressed(path).suffix.lower()
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


def check_output(out: Path, documents: Sequence[tuple[Path, str]]) -> None:
    """Raise an error if the name of the output promises another format than that of the document, or has no folder."""
    wanted, suffix = document_format(out), out.suffix.lower()
    for path, name in documents:
        if wanted not in (None, TEXT, name) or suffix in BINARY_SUFFIXES or has_rows(out) or suffix in TSV.suffixes:
            ending = DOCUMENT_SUFFIXES[name][0]
            raise ConfigError(
                f"--out {out}: the translation of {path} has its format, {name}; end its name in {ending}"
            )
    require_folder_of(out)


def translate_documents(
    translator: "Translator",
    documents: Sequence[tuple[Path, str]],
    out: Path | None,
    *,
    to: str | None,
    source: str | None,
    glossary: "Glossary | None",
    retranslate: bool,
) -> None:
    """Translate each document to `out` or to a file next to it; one that was read from stdin is written to stdout."""
    from transduce.documents.document import ReadOptions
    from transduce.documents.read import read_document
    from transduce.documents.translate import different_texts, translate_tagged

    if out and len(documents) > 1:
        raise ConfigError("--out names one file, but there are several documents; leave it out")
    for path, name in documents:
        began = time.monotonic()
        target = out or (STANDARD_OUTPUT if path == STANDARD_INPUT else _output_path(path, to))
        options = ReadOptions(source or _source_language(translator, to), to, retranslate)
        document = read_document(name, read_whole(path, _MAX_BYTES), str(path), options)
        total = different_texts(document.texts)
        with Progress(lambda total=total: total, 0, False, "texts") as progress:  # type: ignore[misc]
            outputs = translate_tagged(translator, document.texts, to=to, glossary=glossary, text_done=progress.advance)
        content = document.write(outputs)
        if target == STANDARD_OUTPUT:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        elif target.exists() and not target.is_file():  # a pipe or a device
            target.write_bytes(content)
        else:
            write_atomically(target, content)
        seconds = time.monotonic() - began
        where = "" if target == STANDARD_OUTPUT else f"{target} written: "
        log(f"{where}{len(document.texts):,} {'text' if len(document.texts) == 1 else 'texts'} in {seconds:.1f} s")


def _output_path(path: Path, to: str | None) -> Path:
    """The path of a translation: report.docx becomes report.de.docx, and so does report.docx.gz."""
    path = _uncompressed(path)
    return path.with_name(f"{path.stem}.{to or 'translated'}{path.suffix}")


def _source_language(translator: "Translator", to: str | None) -> str | None:
    return translator.pipeline.source_language(to)


def _uncompressed(path: Path) -> Path:
    """The path without the suffix of a compression."""
    return path.with_suffix("") if path.suffix in COMPRESSIONS else path
