"""The file of a SentencePiece model: a protocol buffer, whose pieces are read, renamed and extended."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

NORMAL, USER_DEFINED, UNUSED = 1, 4, 5
"""Types of pieces; the others are unknown, control and byte."""
UNIGRAM, BPE = 1, 2
"""Types of models; the others are words and characters."""

_INTEGER, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types: how the content of a field is written. The tag of a field is its number and its wire type."""
_PIECE, _TRAINING = 1 << 3 | _BYTES, 2 << 3 | _BYTES
"""Tags of the fields of a model: a piece, and the settings of the training."""
_TEXT, _SCORE, _TYPE = 1 << 3 | _BYTES, 2 << 3 | _FOUR_BYTES, 3 << 3 | _INTEGER
"""Tags of the fields of a piece."""
_MODEL_TYPE = 3 << 3 | _INTEGER
"""Tag of the model's type in the settings of the training."""


class Piece(NamedTuple):
    text: str
    score: float
    type: int


def read_pieces(model: bytes) -> tuple[list[Piece], int]:
    """The pieces of a model, and its type.

    A model that SentencePiece would not write raises a LookupError, ValueError or struct.error.
    """
    pieces, model_type = [], UNIGRAM
    for tag, content, _ in _fields(model):
        if tag == _PIECE:
            piece = _contents(content)
            (score,) = struct.unpack("<f", piece.get(_SCORE, bytes(4)))
            pieces.append(Piece(piece[_TEXT].decode(), score, piece.get(_TYPE, NORMAL)))
        elif tag == _TRAINING:
            model_type = _contents(content).get(_MODEL_TYPE, UNIGRAM)
    return pieces, model_type


def rename_pieces(model: bytes, names: Mapping[str, str]) -> bytes:
    """A model with some of its pieces renamed; everything else stays byte for byte."""
    new = {old.encode(): name.encode() for old, name in names.items()}
    renamed = bytearray()
    for tag, content, field in _fields(model):
        if tag == _PIECE:
            parts = (_field(_TEXT, new.get(x, x)) if inner == _TEXT else part for inner, x, part in _fields(content))
            renamed += _field(_PIECE, b"".join(parts))
        else:
            renamed += field
    return bytes(renamed)


def add_user_defined_pieces(model: bytes, texts: Sequence[str]) -> bytes:
    """A model with more pieces, whose ids follow the existing ones."""
    for text in texts:
        # The elements of a list need not be adjacent: a piece at the end of the file is the last one.
        model += _field(_PIECE, _field(_TEXT, text.encode()) + bytes([_SCORE, 0, 0, 0, 0, _TYPE, USER_DEFINED]))
    return model


def _contents(message: bytes) -> dict[int, Any]:
    return {tag: content for tag, content, _ in _fields(message)}


def _fields(message: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """The fields of a protocol buffer: tag, content (an integer, or bytes), and the field as it is written."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        wire_type = tag & 7
        if wire_type == _INTEGER:
            content: int | bytes
            content, at = _read_varint(message, at)
        else:
            fixed = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
            length, at = _read_varint(message, at) if wire_type == _BYTES else (fixed[wire_type], at)
            content, at = message[at : at + length], at + length
        yield tag, content, message[start:at]


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """An integer, seven bits in each byte, and the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def _field(tag: int, content: bytes) -> bytes:
    """A field that holds bytes: its tag, their number as seven bits in each byte, and the bytes."""
    length, count = bytearray(), len(content)
    while count > 127:
        length.append(count & 127 | 128)
        count >>= 7
    return bytes([tag, *length, count]) + content
