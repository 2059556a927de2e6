"""The `AnyTokenizer` contract: what running a model needs of its tokenizer."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.features import HOOKS
from transduce.tokenizers.tokenizer import BOS, MAX_BYTES, Tokenizer


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


IMPORTED = "tokenizer.json"
"""The file of a tokenizer of another toolkit (interop/imported_tokenizers.py)."""
_SIDES = ("source", "target")


def encode_prompt_and_answer(tokenizer: AnyTokenizer, prompt: str, answer: str) -> list[int]:
    """The tokens of a prompt, BOS, and those of its answer."""
    return [*tokenizer.encode_document(prompt), BOS, *tokenizer.encode_document(answer)]


class TokenizerPair:
    """Separate vocabularies, whose ids have nothing in common. The methods are those of the source; see `target`."""

    file_name: ClassVar[str] = "tokenizers.json"

    def __init__(self, source: AnyTokenizer, target: AnyTokenizer) -> None:
        self.source, self.target = source, target.target

    @classmethod
    def parse(cls, file: bytes) -> "TokenizerPair":
        """The inverse of `model`."""
        try:
            content = json.loads(file)
            return cls(*(_read_side(content[side]) for side in _SIDES))
        except RecursionError:
            raise ModelError("nested too deeply") from None
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            raise ModelError(f"not two vocabularies: {error}") from None

    @property
    def model(self) -> bytes:
        sides = zip(_SIDES, (self.source, self.target), strict=True)
        return json.dumps({name: _content(side) for name, side in sides}, indent=1).encode()

    def with_symbols(self, symbols: Sequence[str]) -> "TokenizerPair":
        """These vocabularies, which were not imported, with more user-defined symbols on both sides."""
        assert isinstance(self.source, Tokenizer)
        assert isinstance(self.target, Tokenizer)
        return TokenizerPair(self.source.with_symbols(symbols), self.target.with_symbols(symbols))

    @property
    def is_trained(self) -> bool:
        """Whether both vocabularies are our own, and not those of an imported model."""
        return isinstance(self.source, Tokenizer) and isinstance(self.target, Tokenizer)

    @property
    def vocab_size(self) -> int:
        return self.source.vocab_size

    @property
    def symbol_ids(self) -> Mapping[str, int]:
        return self.source.symbol_ids

    @property
    def adds_prefix(self) -> bool:
        return self.source.adds_prefix

    def encode(self, text: str) -> list[int]:
        return self.source.encode(text)

    def encode_all(self, texts: Sequence[str], threads: int = 1, *, marked: bool = False) -> list[list[int]]:
        return self.source.encode_all(texts, threads, marked=marked)

    def encode_document(self, text: str) -> list[int]:
        return self.source.encode_document(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.source.decode(ids)

    def decode_all(self, many_ids: Sequence[Sequence[int]], threads: int = 1, *, marked: bool = False) -> list[str]:
        return self.source.decode_all(many_ids, threads, marked=marked)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self.source.pieces(ids)

    def raw_bytes(self, token: int) -> bytes:
        return self.source.raw_bytes(token)


def _content(tokenizer: AnyTokenizer) -> dict[str, str]:
    return {"file": tokenizer.file_name, "content": base64.b64encode(tokenizer.model).decode()}


def _read_side(side: Mapping[str, Any]) -> AnyTokenizer:
    if side["file"] not in (Tokenizer.file_name, IMPORTED):
        raise ValueError(f"{side['file']!r:.40} is no file of a vocabulary")
    return _parse(side["file"], base64.b64decode(side["content"], validate=True))


_MAX_BYTES = {TokenizerPair.file_name: 1 << 28, IMPORTED: 1 << 27, Tokenizer.file_name: MAX_BYTES}
"""Limits for the sizes of files: several times the largest in use."""
TOKENIZER_FILES = tuple(_MAX_BYTES)
"""The files that a tokenizer may be in."""


def tokenizer_file(folder: Path) -> Path:
    """The file of the tokenizer of a folder, whichever of the three it has."""
    files = [folder / name for name in TOKENIZER_FILES]
    return next((file for file in files if file.exists()), files[-1])


def load_tokenizer(folder: Path) -> AnyTokenizer:
    file = tokenizer_file(folder)
    require_file(file, _MAX_BYTES[file.name], "a vocabulary can have")
    try:
        return _parse(file.name, file.read_bytes())
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from None


def _parse(name: str, content: bytes) -> AnyTokenizer:
    if name == IMPORTED:
        imported: AnyTokenizer = HOOKS["imported_tokenizer"](content)
        return imported
    return TokenizerPair.parse(content) if name == TokenizerPair.file_name else Tokenizer(content)


def tokenizer_of_stream(tokenizer: AnyTokenizer, stream: str) -> AnyTokenizer:
    """The tokenizer of the texts of a stream of examples (`Reader.streams`)."""
    return tokenizer.target if stream == "tgt" else tokenizer
