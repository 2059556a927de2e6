"""Translates documents: their texts, which are aligned so that inline tags can be put back, and the files."""

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

from transduce.cli.inputs import STANDARD_INPUT, STANDARD_OUTPUT
from transduce.cli.messages import log
from transduce.cli.outputs import refuse_overwriting
from transduce.cli.progress import ProgressBar
from transduce.disk import write_atomically
from transduce.documents.document import AlignedTranslation, Document, ReadOptions
from transduce.documents.read import read_document
from transduce.errors import ConfigError, DataError
from transduce.files.document_formats import TEXT, document_format, require_format_of, translated_name
from transduce.files.files import read_whole, uncompressed
from transduce.translation.commands.direction import detected_source
from transduce.translation.markup import TaggedText
from transduce.translation.translator import Translator
from transduce.translation.wording import TranslateOptions

_MAX_BYTES = 512 << 20
_SAMPLE = 50
"""Texts of a document by which its language is detected."""


def translate_documents(
    translator: Translator,
    documents: Sequence[tuple[Path, str]],
    out: Path | None,
    *,
    to: str | None,
    source: str | None,
    retranslate: bool,
    force: bool,
    **wording: Any,
) -> None:
    """Translate each document to `out`, a file or a folder, or next to it; one that was read from stdin, to stdout.

    A file that exists is replaced only with `force`: a person may have edited it.
    """
    folder = out if out and out.is_dir() else None
    if out and not folder and len(documents) > 1:
        raise ConfigError("--out names one file, but there are several documents; name a folder, or leave it out")
    targets = [out if out and not folder else _output_path(path, name, to, folder) for path, name in documents]
    if folder and len({*targets}) < len(targets):
        raise ConfigError(f"--out {folder}: several documents have the same name; translate them separately")
    for target in targets:
        refuse_overwriting(target, force=force)
    for (path, name), target in zip(documents, targets, strict=True):
        began = time.monotonic()
        document = _read(translator, path, name, target, to, source, retranslate)
        total = len({(text.text, bool(text.tags)) for text in document.texts})
        with ProgressBar(lambda total=total: total, 0, False, "texts") as progress:  # type: ignore[misc]
            outputs = translate_tagged(translator, document.texts, to=to, text_done=progress.advance, **wording)
        _write(target, document.write(outputs))
        if document.warning:
            log(f"warning: {document.warning}")
        seconds = time.monotonic() - began
        where = "" if target == STANDARD_OUTPUT else f"{target} written: "
        log(f"{where}{len(document.texts):,} {'text' if len(document.texts) == 1 else 'texts'} in {seconds:.1f} s")


def translate_document(
    translator: Translator,
    path: str | Path,
    out: str | Path | None = None,
    *,
    to: str | None = None,
    source: str | None = None,
    retranslate: bool = False,
    force: bool = False,
    **options: Unpack[TranslateOptions],
) -> Path:
    """Translate a document, whose name tells its format, and return the path of the translation.

    That is `out` or, next to the document, its name with the target language: report.de.docx. A file that exists is
    replaced only with `force`. `retranslate` also translates what has a translation in the document. What the
    translation lacks, such as the text of pictures, is a warning.
    """
    path, to = Path(path), translator.target(to, source)
    name = document_format(uncompressed(path))
    if name is None or name == TEXT:
        raise DataError(f"{path} has not the name of a document; translate lines with Translator.translate or stream")
    target = Path(out) if out else _output_path(path, name, to)
    require_format_of(path, name, target)
    if not target.parent.is_dir():
        raise ConfigError(f"{target}: there is no folder {target.parent}; make it first")
    if target.exists() and not force:
        raise ConfigError(f"{target} exists already; name another file (out), or overwrite it with force=True")
    document = _read(translator, path, name, target, to, source, retranslate)
    _write(target, document.write(translate_tagged(translator, document.texts, to=to, **options)))
    if document.warning:
        warnings.warn(document.warning, stacklevel=2)
    return target


def _read(
    translator: Translator, path: Path, name: str, target: Path, to: str | None, source: str | None, retranslate: bool
) -> Document:
    options = ReadOptions(
        source or translator.pipeline.source_language(to), to, retranslate, output=document_format(target)
    )
    document = read_document(name, read_whole(path, _MAX_BYTES), str(path), options)
    if not source:  # the target language is chosen before a document is read
        sample = " ".join(text.text for text in document.texts[:_SAMPLE])
        detected_source(translator.languages, sample, to or translator.default_to, translator)
    return document


def _write(target: Path, content: bytes) -> None:
    if target == STANDARD_OUTPUT:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    elif target.exists() and not target.is_file():  # a pipe or a device
        target.write_bytes(content)
    else:
        write_atomically(target, content)


def _output_path(path: Path, format_: str, to: str | None, folder: Path | None = None) -> Path:
    """The path of a translation: report.docx becomes report.de.docx, and so does report.docx.gz."""
    if path == STANDARD_INPUT:
        return path
    return (folder or path.parent) / translated_name(uncompressed(path), format_, to)


def translate_tagged(
    translator: Translator,
    texts: Sequence[TaggedText],
    *,
    to: str | None = None,
    text_done: Callable[[], object] = lambda: None,
    **options: Any,
) -> list[AlignedTranslation]:
    """The translation of each text; a text that occurs several times is translated once.

    `text_done` is called when a different text is translated. Only texts with tags are aligned, which takes time.
    """
    aligns = translator.any_model.aligns
    outputs: dict[tuple[str, bool], AlignedTranslation] = {}
    for align in (False, True):
        different = [*dict.fromkeys(text.text for text in texts if bool(text.tags) == align)]
        results = translator.stream(different, to=to, align=align and aligns, text_done=text_done, **options)
        for text, best in zip(different, results, strict=True):
            aligned = translator.aligned_spans(best.segments, best[0])
            outputs[text, align] = AlignedTranslation(best[0].text.replace("\n", " "), aligned)
    return [outputs[text.text, bool(text.tags)] for text in texts]
