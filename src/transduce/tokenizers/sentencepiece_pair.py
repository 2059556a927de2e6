"""Tokenizers of Marian models: a SentencePiece model for the source, one for the target, and a list of pieces."""

import base64
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sentencepiece

from transduce.errors import ModelError
from transduce.files.one_line import one_line
from transduce.tokenizers.imported_tokenizer import MARKERS, ImportedTokenizer, raw_piece
from transduce.tokenizers.symbols import SPACE_MARK
from transduce.tokenizers.token_order import TokenOrder
from transduce.tokenizers.tokenizer import UNK

_LANGUAGE_CODE = re.compile(r">>[^<]*<<")


class SentencePiecePair(ImportedTokenizer):
    """SentencePiece models of source and target with one list of pieces, whose indices are the ids (Marian)."""

    def __init__(
        self, source: bytes, target: bytes, pieces: Sequence[str], order: TokenOrder, before: Sequence[int] = ()
    ) -> None:
        super().__init__(order, before)
        if not all(isinstance(piece, str) for piece in pieces):
            raise ModelError("its pieces are not texts")
        "".join(pieces).encode()  # raises UnicodeEncodeError, a ValueError, for lone surrogates
        self.models = (source, target)
        """The SentencePiece models of source and target."""
        self._pieces = list(pieces)
        self._source, self._target = _processor(source), _processor(target)
        self._id = {piece: token for token, piece in enumerate(self._pieces)}

    @property
    def _content(self) -> dict[str, Any]:
        source, target = (base64.b64encode(model).decode() for model in self.models)
        return {"source": source, "target": target, "pieces": self._pieces}

    @property
    def names(self) -> list[str]:
        """The piece of each id as its files write it; markers have our names, and no two ids the same one."""
        names = list(MARKERS.values())
        for original in self.order.originals[len(names) :]:
            piece = self._pieces[original] if original < len(self._pieces) else self._name(original)
            names.append(self._name(original) if piece in MARKERS.values() else piece)
        return names

    @cached_property
    def target(self) -> "SentencePiecePair":
        """See `ImportedTokenizer`: it encodes with the SentencePiece model of the target."""
        other = self._copy()
        other.models, other._source = (self.models[1], self.models[1]), self._target
        return other

    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        # Models with several target languages expect a code such as >>fra<<, which is one token, before the text.
        codes = [_LANGUAGE_CODE.match(text) for text in texts]
        rests = [text[code.end() :] if code else text for text, code in zip(texts, codes, strict=True)]
        encoded = self._source.encode(rests, out_type=str, num_threads=threads)
        unknown = self.order.markers[UNK]
        return [
            [self._id.get(piece, unknown) for piece in ([code[0], *pieces] if code else pieces)]
            for code, pieces in zip(codes, encoded, strict=True)
        ]

    def _decode(self, originals: Sequence[int]) -> str:
        pieces = [self._pieces[token] for token in originals if token < len(self._pieces)]
        return str(self._target.decode_pieces(pieces)).replace(SPACE_MARK, " ").strip()

    def _raw_bytes(self, original: int) -> bytes:
        return raw_piece(self._pieces[original]) if original < len(self._pieces) else b""

    def _name(self, original: int) -> str:
        return f"<unused{original}>"


def _processor(model: bytes) -> Any:
    try:
        if not model:
            raise RuntimeError("it is empty")
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ModelError(one_line(f"not a SentencePiece model: {error}")) from None
