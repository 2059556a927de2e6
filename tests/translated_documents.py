"""Reads documents, and translates them by a function instead of a model."""

import io
import re
import zipfile
from collections.abc import Callable
from typing import Any

from document_samples import SAMPLES

from transduce.documents.document import AlignedTranslation, Document, ReadOptions
from transduce.documents.read import read_document
from transduce.translation.markup import TaggedText

BILINGUAL = (".po", ".xliff", ".tmx")
"""Formats that keep the source text beside the translation."""


def read(name: str, data: bytes | None = None, **options: Any) -> Document:
    """A sample, or other data with such a name, from English to German."""
    data = SAMPLES[name]() if data is None else data
    return read_document(name.rpartition(".")[2], data, name, ReadOptions("en", "de", **options))


def translated(document: Document, translate: Callable[[str], str]) -> bytes:
    """The document with each word aligned with the word at the same place; protected text is not translated."""

    def output(tagged: TaggedText) -> AlignedTranslation:
        words = [word.span() for word in re.finditer(r"\S+", tagged.text)]
        text, at = "", 0
        for start, end, _ in tagged.protected:
            text += translate(tagged.text[at:start]) + tagged.text[start:end]
            at = end
        return AlignedTranslation(text + translate(tagged.text[at:]), [(word, word) for word in words])

    return document.write([output(text) for text in document.texts])


def members(name: str, data: bytes) -> dict[str, bytes]:
    """The content of a document; of a package, that of every member."""
    if not name.endswith(("docx", "odt")):
        return {"": data}
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        return {info.filename: package.read(info) for info in package.infolist()}
