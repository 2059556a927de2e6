"""The `AnyTokenizer` contract: what running a model needs of its tokenizer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from transduce.tokenizers.imported_tokenizer import ImportedTokenizer
from transduce.tokenizers.imported_tokenizer_file import load_imported_tokenizer
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.tokenizers.tokenizer_pair import TokenizerPair


class AnyTokenizer(Protocol):
    """A vocabulary with the ids PAD, UNK, BOS and EOS: our own `Tokenizer`, or that of an imported model.

    A `TokenizerPair` has two: it encodes and decodes sources, and its `target` has ids of its own for outputs.
    """

    file_name: ClassVar[str]
    """Name of its file in a folder."""

    @property
    def model(self) -> bytes:
        """The content of its file."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, including markers."""

    @property
    def symbol_ids(self) -> Mapping[str, int]:
        """The id of each reserved symbol and language tag."""

    @property
    def target(self) -> "AnyTokenizer":
        """The tokenizer of outputs, which may encode differently; the ids are the same unless it is one of a pair."""

    def encode(self, text: str) -> list[int]:
        """Encode a text, without markers."""

    def encode_all(self, texts: Sequence[str], threads: int = 1, *, marked: bool = False) -> list[list[int]]:
        """Encode many texts, which are `marked` if they may contain symbols; -1 threads: one for each core."""

    def encode_document(self, text: str) -> list[int]:
        """Encode a text of any length, without markers."""

    @property
    def adds_prefix(self) -> bool:
        """Whether a space is added before every text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text; markers and symbols are ignored."""

    def decode_all(self, many_ids: Sequence[Sequence[int]], threads: int = 1, *, marked: bool = False) -> list[str]:
        """Decode many texts, to `marked` texts if symbols are to be kept."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id in SentencePiece's notation."""

    def raw_bytes(self, token: int) -> bytes:
        """The UTF-8 bytes that an id adds to a text; none for markers."""


TOKENIZER_FILES = tuple(kind.file_name for kind in (TokenizerPair, ImportedTokenizer, Tokenizer))
"""The files that a tokenizer may be in."""


def tokenizer_file(folder: Path) -> Path:
    """The file of the tokenizer of a folder, whichever of the three it has."""
    files = [folder / name for name in TOKENIZER_FILES]
    return next((file for file in files if file.exists()), files[-1])


def load_tokenizer(folder: Path) -> AnyTokenizer:
    """Read the tokenizer of a folder."""
    file = tokenizer_file(folder)
    if file.name == TokenizerPair.file_name:
        return TokenizerPair.load(file)
    return load_imported_tokenizer(file) if file.name == ImportedTokenizer.file_name else Tokenizer.load(file)


def tokenizer_of_stream(tokenizer: AnyTokenizer, stream: str) -> AnyTokenizer:
    """The tokenizer of the texts of a stream of examples (`Reader.streams`)."""
    return tokenizer.target if stream == "tgt" else tokenizer
