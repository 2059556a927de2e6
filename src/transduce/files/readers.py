"""Readers: what the examples of a corpus are. An example is a tuple of texts, or an array and texts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.features import Registry
from transduce.files.documents import DocumentPiece, read_documents, read_pieces, read_texts
from transduce.files.pairs import Corpus, ReadReport, read_pairs

Tokens = tuple[Sequence[int], ...]
"""The tokens of each stream of an example."""


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
    labels: bool = False
    """Whether the last item of an example is the name of a class, whose stream is its number."""
    pieces: Callable[..., Iterator[DocumentPiece]] | None = None
    """If examples are documents, which may be long: `pieces(corpus, report)` yields them in pieces."""
    symbols: Callable[[Corpus], list[str]] = lambda _: []
    """The symbols that the vocabulary of a training corpus must have for this reader."""
    named_files: Callable[[Path], Iterable[Path]] = lambda _: ()
    """The files that a file of the corpus names and that are read as well."""
    respeller: Callable[[Sequence[str]], Callable[[Tokens], Tokens]] = lambda _: lambda tokens: tokens
    """For the pieces of a vocabulary, a function that corrects the tokens of an example after BPE-dropout."""

    revision: str = ""
    """Part of the key of prepared text: another one, if examples of older versions must not be reused."""

    def texts(self, example: Sequence[Any]) -> Sequence[str]:
        """The items of an example that are texts."""
        return example[int(self.arrays) : len(example) - int(self.labels)]


PAIRS = Reader(("src", "tgt"), read_pairs, has_sides=True, has_translations=True)
LINES = Reader(("text",), read_texts)
DOCUMENTS = Reader(("text",), read_documents, pieces=read_pieces)

DEFAULT_READER = "pairs"
READERS: Registry[Reader] = Registry("readers")
"""The readers of all features (features.py)."""


def require_usable(corpus: Corpus, report: ReadReport, noun: str) -> None:
    """Raise an error if nothing was read."""
    if report.pairs == 0:
        names = ", ".join(" + ".join(files) for files in corpus)
        raise DataError("; ".join([f"{names}: no {noun}", *report.lines()]))
