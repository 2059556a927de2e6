"""Separate vocabularies: a tokenizer for the source and one for the target, whose ids have nothing in common."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.tokenizers.imported_tokenizer import ImportedTokenizer
from transduce.tokenizers.imported_tokenizer_file import parse_imported_tokenizer
from transduce.tokenizers.tokenizer import Tokenizer

OneTokenizer = Tokenizer | ImportedTokenizer
_MAX_BYTES = 1 << 28
_SIDES = ("source", "target")
_PARSERS: dict[str, Callable[[bytes], OneTokenizer]] = {
    Tokenizer.file_name: Tokenizer,
    ImportedTokenizer.file_name: parse_imported_tokenizer,
}


class TokenizerPair:
    """The tokenizers of source and target. Its own methods are those of the source; outputs belong to `target`."""

    file_name: ClassVar[str] = "tokenizers.json"

    def __init__(self, source: OneTokenizer, target: OneTokenizer) -> None:
        self.source, self.target = source, target.target

    @classmethod
    def load(cls, path: Path) -> "TokenizerPair":
        """Read saved vocabularies."""
        require_file(path, _MAX_BYTES, "two vocabularies can have")
        try:
            content = json.loads(path.read_bytes())
            source, target = (_read_side(content[side]) for side in _SIDES)
        except RecursionError:
            raise ModelError(f"{path}: nested too deeply") from None
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            raise ModelError(f"{path}: not two vocabularies: {error}") from None
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None
        return cls(source, target)

    @property
    def model(self) -> bytes:
        """The content of the saved file."""
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
        """Number of ids of the source."""
        return self.source.vocab_size

    @property
    def symbol_ids(self) -> Mapping[str, int]:
        """The id of each symbol in the vocabulary of the source."""
        return self.source.symbol_ids

    @property
    def adds_prefix(self) -> bool:
        """See `AnyTokenizer`."""
        return self.source.adds_prefix

    def encode(self, text: str) -> list[int]:
        """See `AnyTokenizer`."""
        return self.source.encode(text)

    def encode_all(self, texts: Sequence[str], threads: int = 1, *, marked: bool = False) -> list[list[int]]:
        """See `AnyTokenizer`."""
        return self.source.encode_all(texts, threads, marked=marked)

    def encode_document(self, text: str) -> list[int]:
        """See `AnyTokenizer`."""
        return self.source.encode_document(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See `AnyTokenizer`."""
        return self.source.decode(ids)

    def decode_all(self, many_ids: Sequence[Sequence[int]], threads: int = 1, *, marked: bool = False) -> list[str]:
        """See `AnyTokenizer`."""
        return self.source.decode_all(many_ids, threads, marked=marked)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """See `AnyTokenizer`."""
        return self.source.pieces(ids)

    def raw_bytes(self, token: int) -> bytes:
        """See `AnyTokenizer`."""
        return self.source.raw_bytes(token)


def _content(tokenizer: OneTokenizer) -> dict[str, str]:
    return {"file": tokenizer.file_name, "content": base64.b64encode(tokenizer.model).decode()}


def _read_side(side: Mapping[str, Any]) -> OneTokenizer:
    if side["file"] not in _PARSERS:
        raise ValueError(f"{side['file']!r:.40} is no file of a vocabulary")
    return _PARSERS[side["file"]](base64.b64decode(side["content"], validate=True))
