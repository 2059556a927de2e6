"""Text files: each line is translated separately."""

from transduce.documents.document import Document, Splicer, Unit, has_words, tagged_text, text_document, unchanged
from transduce.documents.encodings import decode_text
from transduce.documents.options import ReadOptions


def read_text(data: bytes, name: str, options: ReadOptions) -> Document:
    """Read a text file; the options make no difference."""
    source, encoding = decode_text(data, name)
    splicer, end = Splicer(source), len(source)
    for line in reversed(source.split("\n")):
        start, stripped = end - len(line), line.strip()
        if has_words(text := tagged_text(line)):
            first = start + line.index(stripped)
            splicer.add(first, first + len(stripped), Unit([text], lambda outputs: outputs[0], unchanged))
        end = start - 1
    return text_document(splicer, encoding)
