"""Texts, one on each line of a file, or in each row of a .jsonl file with the field "text"."""

from collections.abc import Iterator
from pathlib import Path

from transduce.errors import DataError
from transduce.text.documents import text_of_row
from transduce.text.files import raw_lines
from transduce.text.formats import format_suffix
from transduce.text.formats.jsonl import JSONL
from transduce.text.formats.pair_format import UnusableError, decode
from transduce.text.pairs import Corpus, ReadReport


def read_texts(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[str]]:
    """Yield the texts of a corpus; an unusable line is left out and counted. `reverse` has no meaning for them."""
    report.noun = "text"
    for files in corpus:
        name = single_file(files)
        parse = text_of_row if format_suffix(Path(name)) in JSONL.suffixes else decode
        for number, raw in enumerate(raw_lines(Path(name)), start=1):
            try:
                text = parse(raw)
            except UnusableError as problem:
                report.note(str(problem), name, number)
            else:
                report.pairs += 1
                yield (text,)
    if report.pairs == 0:
        names = ", ".join(name for (name,) in corpus)
        raise DataError("; ".join([f"{names}: no text", *report.lines()]))


def single_file(files: tuple[str, ...]) -> str:
    """The file of an entry of a corpus that must be one file."""
    if len(files) != 1:
        raise DataError(f"{' + '.join(files)}: text is read from single files, not from pairs of files")
    return files[0]
