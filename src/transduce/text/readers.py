"""Readers: what the examples of a corpus are. An example is a tuple of texts, one for each stream of tokens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from transduce.text.documents import Piece, read_documents, read_pieces
from transduce.text.pairs import Corpus, ReadReport, read_pairs
from transduce.text.trees import bracket_symbols, read_corpus, read_linearized


@dataclass(frozen=True)
class Reader:
    """A row of the table of readers."""

    streams: tuple[str, ...]
    """The name of each stream, which is part of the file names of token shards."""
    read: Callable[..., Iterator[tuple[str, ...]]]
    """`read(corpus, report, reverse=...)` yields the usable examples in order; `reverse` exchanges sides of pairs."""
    symbols: Callable[[Corpus], list[str]] = lambda _: []
    """The symbols that the vocabulary of a training corpus must have for this reader."""
    pieces: Callable[..., Iterator[Piece]] | None = None
    """If examples are documents, which may be long: `pieces(corpus, report)` yields them in pieces."""


READERS = {
    "pairs": Reader(("src", "tgt"), read_pairs),
    "trees": Reader(
        ("src", "tgt"), read_linearized, symbols=lambda corpus: bracket_symbols(read_corpus(corpus, ReadReport()))
    ),
    "text": Reader(("text",), read_documents, pieces=read_pieces),
}
