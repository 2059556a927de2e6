"""The tokenizer of an imported model: what those of every kind have in common.

The kinds are those of the `tokenizers` library (`library_tokenizer.py`) and pairs of SentencePiece models
(`sentencepiece_pair.py`); `imported_tokenizer_file.py` reads both.
"""

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

from transduce.tokenizers.symbols import BYTE_TOKEN, SPACE_MARK, escape, unescape
from transduce.tokenizers.token_order import TokenOrder
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK

MARKERS = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}


class ImportedTokenizer(ABC):
    """A vocabulary that was made by other means, with our ids. It has no reserved symbols.

    Texts are normalized as the original prescribes, so decoding may restore them only in part.
    """

    file_name: ClassVar[str] = "tokenizer.json"
    symbol_ids: Mapping[str, int] = {}

    def __init__(self, order: TokenOrder, before: Sequence[int] = ()) -> None:
        self.order = order
        self.before = list(before)
        """Tokens that begin every source, as our ids (<s> of BART)."""

    @property
    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """The original files."""

    @abstractmethod
    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        """The original ids of texts."""

    @abstractmethod
    def _decode(self, originals: Sequence[int]) -> str:
        """The text of original ids, none of which is a marker."""

    @abstractmethod
    def _raw_bytes(self, original: int) -> bytes:
        """The bytes that an original id adds to a text."""

    @abstractmethod
    def _name(self, original: int) -> str:
        """The piece of an original id that adds nothing to a text."""

    @property
    @abstractmethod
    def target(self) -> "ImportedTokenizer":
        """The tokenizer of outputs."""

    def _copy(self) -> Self:
        """The same vocabulary, which is not read again, without tokens before every text."""
        other = copy.copy(self)
        for name in ("model", "target", "adds_prefix"):  # computed from what a copy changes
            other.__dict__.pop(name, None)
        other.before = []
        return other

    @cached_property
    def model(self) -> bytes:
        """The content of the saved file."""
        order = {"markers": self.order.markers, "size": self.order.size, "before": self.before}
        return json.dumps(order | self._content, ensure_ascii=False).encode()

    @property
    def vocab_size(self) -> int:
        """Number of ids, including markers and ids without a piece."""
        return len(self.order.originals)

    def encode(self, text: str) -> list[int]:
        """Encode a text, without markers."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str], threads: int = 1, *, marked: bool = False) -> list[list[int]]:
        """Encode many texts; symbols of `marked` texts are left out, because this vocabulary has none."""
        ids, size = self.order.ids, self.order.size
        plain = [unescape(text) for text in texts] if marked else list(texts)
        encoded = self._encode(plain, threads)
        return [[*self.before, *(ids[one] if one < size else UNK for one in own)] for own in encoded]

    def encode_document(self, text: str) -> list[int]:
        """Encode a text of any length, without markers."""
        return self.encode(text)

    @cached_property
    def adds_prefix(self) -> bool:
        """Whether a space is added before every text."""
        return b"".join(map(self.raw_bytes, self.encode("a"))).startswith(b" ")

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text; markers are ignored."""
        return self.decode_all([ids])[0]

    def decode_all(self, many_ids: Sequence[Sequence[int]], threads: int = 1, *, marked: bool = False) -> list[str]:
        """Decode many texts, to `marked` texts if required."""
        originals = self.order.originals
        texts = [self._decode([originals[token] for token in ids if token > EOS]) for ids in many_ids]
        return [escape(text) for text in texts] if marked else texts

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id in SentencePiece's notation, in which ▁ is a space."""
        return [self._all_pieces[token] for token in ids]

    @cached_property
    def _all_pieces(self) -> list[str]:
        pieces = list(MARKERS.values())
        for original in self.order.originals[len(pieces) :]:
            raw = self._raw_bytes(original)
            text = raw.decode(errors="backslashreplace").replace(" ", SPACE_MARK) if raw else self._name(original)
            pieces.append(f"<0x{raw[0]:02X}>" if len(raw) == 1 and raw[0] >= 128 else text)
        return pieces

    def raw_bytes(self, token: int) -> bytes:
        """The UTF-8 bytes that an id adds to a text; none for markers and special tokens."""
        return b"" if token <= EOS else self._raw_bytes(self.order.originals[token])


def raw_piece(piece: str) -> bytes:
    """The bytes of a piece in SentencePiece's notation."""
    byte = BYTE_TOKEN.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE_MARK, " ").encode()
