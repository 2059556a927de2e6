"""Tokenizers of the `tokenizers` library, which is optional: imported models have them as `tokenizer.json`."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

from transduce.errors import ModelError
from transduce.files.one_line import one_line
from transduce.tokenizers.imported_tokenizer import ImportedTokenizer, raw_piece
from transduce.tokenizers.token_order import TokenOrder


class LibraryTokenizer(ImportedTokenizer):
    """A tokenizer of the `tokenizers` library, as in the file `tokenizer.json` of Hugging Face."""

    def __init__(self, text: str, order: TokenOrder, before: Sequence[int] = ()) -> None:
        super().__init__(order, before)
        self._text = text
        self._tokenizer = parse_tokenizer(text)
        decoder = str(json.loads(text).get("decoder"))
        self._is_byte_level, self._is_word_piece = "'ByteLevel'" in decoder, "'WordPiece'" in decoder
        added = self._tokenizer.get_added_tokens_decoder()
        self._added = {token: one.content for token, one in added.items()}
        self._special = {token for token, one in added.items() if one.special}

    @property
    def _content(self) -> dict[str, Any]:
        return {"tokenizer": self._text}

    @cached_property
    def target(self) -> "LibraryTokenizer":
        """See `ImportedTokenizer`."""
        return self._copy() if self.before else self

    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        with _library_errors("encode a text with this vocabulary"):
            if threads == 1 or len(texts) == 1:
                return [self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
            return [one.ids for one in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def _decode(self, originals: Sequence[int]) -> str:
        with _library_errors("decode tokens of this vocabulary"):
            return cast(str, self._tokenizer.decode(originals, skip_special_tokens=True))

    def _raw_bytes(self, original: int) -> bytes:
        piece = self._tokenizer.id_to_token(original)
        if piece is None or original in self._special:
            return b""
        if original in self._added:
            return self._added[original].encode()
        if self._is_byte_level:
            return bytes(_BYTE_OF[character] for character in piece if character in _BYTE_OF)
        if self._is_word_piece:
            return piece.removeprefix("##").encode() if piece.startswith("##") else f" {piece}".encode()
        return raw_piece(piece)

    def _name(self, original: int) -> str:
        return self._added.get(original, f"<unused{original}>")


def import_tokenizers() -> Any:
    """The `tokenizers` library, which is optional."""
    try:
        import tokenizers
    except ImportError:
        raise ModelError("imported vocabularies need the package tokenizers: pip install 'transduce[import]'") from None
    return tokenizers


def parse_tokenizer(text: str) -> Any:
    """The object of the `tokenizers` library that a `tokenizer.json` describes; it neither truncates nor pads."""
    library = import_tokenizers()
    with _library_errors("read it", ValueError):
        tokenizer = library.Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@contextmanager
def _library_errors(action: str, kind: type[Exception] = ModelError) -> Iterator[None]:
    """Turn any error of the `tokenizers` library into one of this kind."""
    try:
        yield
    except BaseException as error:  # a panic of the library, which is written in Rust, is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise kind(one_line(f"the tokenizers library cannot {action}: {error}")) from None


def _byte_characters() -> dict[str, int]:
    """The byte that each character of a byte-level piece stands for: itself if it is printable, otherwise from 256."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_characters()
