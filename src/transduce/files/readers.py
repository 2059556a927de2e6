"""Readers: what the examples of a corpus are. An example is a tuple of texts, or an array and texts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.files.documents import Piece, read_documents, read_pieces, read_texts
from transduce.files.labelled import read_images, read_labelled
from transduce.files.pairs import Corpus, ReadReport, read_pairs
from transduce.parsing.linearized_trees import bracket_symbols, read_linearized
from transduce.parsing.trees import read_corpus
from transduce.speech.recordings import read_speech, sound_files


@dataclass(frozen=True)
class Reader:
    """A row of the table of readers."""

    streams: tuple[str, ...]
    """The name of each stream, which is part of the file names of token shards."""
    read: Callable[..., Iterator[tuple[Any, ...]]]
    """`read(corpus, report, reverse=...)` yields the usable examples in order; `reverse` exchanges sides of pairs."""
    arrays: bool = False
    """Whether the first item of an example is an array of numbers, for example pixels, instead of a text."""
    labels: bool = False
    """Whether the last item of an example is the name of a class, whose stream is its number."""
    symbols: Callable[[Corpus], list[str]] = lambda _: []
    """The symbols that the vocabulary of a training corpus must have for this reader."""
    named_files: Callable[[Path], Iterable[Path]] = lambda _: ()
    """The files that a file of the corpus names and that are read as well."""

    def texts(self, example: Sequence[Any]) -> Sequence[str]:
        """The items of an example that are texts."""
        return example[int(self.arrays) : len(example) - int(self.labels)]

    pieces: Callable[..., Iterator[Piece]] | None = None
    """If examples are documents, which may be long: `pieces(corpus, report)` yields them in pieces."""


READERS = {
    "pairs": Reader(("src", "tgt"), read_pairs),
    "trees": Reader(
        ("src", "tgt"), read_linearized, symbols=lambda corpus: bracket_symbols(read_corpus(corpus, ReadReport()))
    ),
    "lines": Reader(("text",), read_texts),
    "labelled": Reader(("text", "label"), read_labelled, labels=True),
    "images": Reader(("image", "label"), read_images, arrays=True, labels=True),
    "speech": Reader(("src", "tgt"), read_speech, arrays=True, named_files=sound_files),
    "text": Reader(("text",), read_documents, pieces=read_pieces),
}
