"""Readers: what the examples of a corpus are. An example is a tuple of texts, or an array and texts.

Of texts of one language, a .jsonl file or a table holds one per row, in the field "text"; any other file has one on
each line.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.features import Registry
from transduce.files.files import raw_lines
from transduce.files.pair_formats import BAD_UTF8, NUL, UnusableError, decode, has_rows, parse_each, require_one_side
from transduce.files.pairs import Corpus, ReadReport, read_pairs, require_usable
from transduce.files.parquet import is_table, read_table

Tokens = tuple[Sequence[int], ...]
"""The tokens of each stream of an example."""
BAD_ROW, BLANK, OVERLONG_ROW = 'not a row with a text "text"', "without text", "longer than 1 GB"
_MAX_ROW_BYTES = 1 << 30


@dataclass(frozen=True)
class Reader:
    """How the files of a corpus are read."""

    streams: tuple[str, ...]
    """The name of each stream, which is part of the file names of token shards."""
    read: Callable[..., Iterator[tuple[Any, ...]]]
    """`read(corpus, report, reverse=...)` yields the usable examples in order; `reverse` exchanges sides of pairs."""
    has_sides: bool = False
    """Whether an example is a source text and a target text, so that text may have a direction."""
    has_translations: bool = False
    """Whether the target text is a translation of the source text."""
    arrays: bool = False
    """Whether the first item of an example is an array of numbers, for example pixels, instead of a text."""
    has_prompts: bool = False
    """Whether an example is a prompt and its answer, which become one stream, with BOS between them."""
    labels: bool = False
    """Whether the last item of an example is the name of a class, whose stream is its number."""
    pieces: Callable[..., Iterator[Any]] | None = None
    """If examples may be too long for memory: `pieces(corpus, report)` yields them in pieces. They are never too long
    to be trained on, and the reader writes them: `write` is like `write_pairs`, `encode` like `encode_shards`
    (data/write_corpus.py), given the corpus."""
    write: Callable[..., None] | None = None
    encode: Callable[..., None] | None = None
    symbols: Callable[[Corpus], list[str]] = lambda _: []
    """The symbols that the vocabulary of a training corpus must have for this reader."""
    named_files: Callable[[Path], Iterable[Path]] = lambda _: ()
    """The files that a file of the corpus names and that are read as well."""
    respeller: Callable[[Sequence[str]], Callable[[Tokens], Tokens]] = lambda _: lambda tokens: tokens
    """For the pieces of a vocabulary, a function that corrects the tokens of an example after BPE-dropout."""

    revision: str = ""
    """Part of the key of prepared text: another one, if examples of older versions must not be reused."""

    def texts(self, example: Sequence[Any]) -> Sequence[str]:
        return example[int(self.arrays) : len(example) - int(self.labels)]


def row_texts(path: Path) -> Iterator[tuple[int, str | UnusableError]]:
    """The number of each row of a .jsonl file or a table, with its text "text", or the problem with it."""
    rows: Iterator[Any] = read_table(path, ["text"]) if is_table(path) else raw_lines(path, _MAX_ROW_BYTES)
    return parse_each(rows, text_of_row)


def text_of_row(row: bytes | Mapping[str, Any] | None) -> str | None:
    """The text of a row of a .jsonl file or a table, or raise `UnusableError`; None stands for an overlong row.

    A blank line is no row, and gives None.
    """
    if row is None:
        raise UnusableError(OVERLONG_ROW)
    if isinstance(row, bytes) and not row.strip():
        return None
    try:
        text = (json.loads(row.decode("utf-8")) if isinstance(row, bytes) else row)["text"]
        text.encode()
    except UnicodeError:
        raise UnusableError(BAD_UTF8) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UnusableError(BAD_ROW) from None
    if "\0" in text:
        raise UnusableError(NUL)
    if not text or text.isspace():
        raise UnusableError(BLANK)
    return str(text)


def read_texts(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[str]]:
    """Yield the texts of a corpus; an unusable line is left out and counted. `reverse` has no meaning for them."""
    report.noun = "text"
    for files in corpus:
        name = single_file(files)
        for number, text in row_texts(Path(name)) if has_rows(Path(name)) else _lines(Path(name)):
            if isinstance(text, UnusableError):
                report.note(str(text), name, number)
            else:
                report.pairs += 1
                yield (text,)
    require_usable(corpus, report, "text")


def _lines(path: Path) -> Iterator[tuple[int, str | UnusableError]]:
    require_one_side(path)
    return parse_each(raw_lines(path), decode)


def single_file(files: tuple[str, ...]) -> str:
    if len(files) != 1:
        raise DataError(f"{' + '.join(files)}: text is read from single files, not from pairs of files")
    return files[0]


PAIRS = Reader(("src", "tgt"), read_pairs, has_sides=True, has_translations=True)
LINES = Reader(("text",), read_texts)

DEFAULT_READER = "pairs"
READERS: Registry[Reader] = Registry("readers")
"""The readers of all features (features.py)."""
