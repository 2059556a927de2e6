"""The vocabulary of a model in the form of other toolkits: SentencePiece models and a list of pieces.

A tag of a language is a reserved symbol of private characters here; an exported one is written `<2de>`, so that people
can type it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import ModelError
from transduce.text.any_tokenizer import AnyTokenizer
from transduce.text.imported_tokenizer import SentencePiecePair
from transduce.text.languages import is_language_code
from transduce.text.symbols import language_tag
from transduce.text.tokenizer import Tokenizer, wire_field
from transduce.text.tokenizer_pair import TokenizerPair

_PIECES, _TEXT = 1, 1
"""Numbers of fields: the pieces of a SentencePiece model, and the text of a piece."""


@dataclass(frozen=True)
class ExportedVocabulary:
    """SentencePiece models and pieces, in the order of our ids."""

    source_spm: bytes
    target_spm: bytes
    pieces: Sequence[str]
    tags: Mapping[str, str]
    """The piece that selects each target language; empty if the model has no tags."""
    source_pieces: Sequence[str] | None = None
    """The pieces of the source, if it has a vocabulary of its own; `pieces` are then those of the target."""


def export_vocabulary(tokenizer: AnyTokenizer, languages: Sequence[str]) -> ExportedVocabulary:
    """The vocabulary, with the tags of these languages in a form that can be typed."""
    if isinstance(tokenizer, TokenizerPair):
        source, target = export_vocabulary(tokenizer.source, languages), export_vocabulary(tokenizer.target, [])
        return ExportedVocabulary(source.source_spm, target.target_spm, target.pieces, source.tags, source.pieces)
    if isinstance(tokenizer, SentencePiecePair) and not tokenizer.before:
        return ExportedVocabulary(*tokenizer.models, tokenizer.names, {})
    if not isinstance(tokenizer, Tokenizer):
        raise ModelError("a vocabulary that is no SentencePiece model cannot be exported")
    tags = {code: typed_tag(code) for code in languages}
    names = {language_tag(code): tag for code, tag in tags.items()}
    if taken := [tag for tag in tags.values() if tag in tokenizer.names]:
        raise ModelError(f"the vocabulary has the piece {taken[0]} already, which would be the tag of a language")
    spm = rename_pieces(tokenizer.model, names)
    return ExportedVocabulary(spm, spm, [names.get(piece, piece) for piece in tokenizer.names], tags)


def restore_vocabulary(spm: bytes, languages: Sequence[str]) -> Tokenizer:
    """The tokenizer whose vocabulary was exported: the inverse of `export_vocabulary`."""
    return Tokenizer(rename_pieces(spm, {typed_tag(code): language_tag(code) for code in languages}))


def typed_tag(code: str) -> str:
    """The exported tag of a language."""
    assert is_language_code(code)
    return f"<2{code}>"


def rename_pieces(spm: bytes, names: Mapping[str, str]) -> bytes:
    """A SentencePiece model, which is a protocol buffer, with some of its pieces renamed."""
    new = {old.encode(): name.encode() for old, name in names.items()}
    renamed = bytearray()
    for number, content, raw in _fields(spm):
        if number != _PIECES or content is None:
            renamed += raw
            continue
        piece = b"".join(
            wire_field(_TEXT, new.get(text, text)) if own == _TEXT and text is not None else whole
            for own, text, whole in _fields(content)
        )
        renamed += wire_field(_PIECES, piece)
    return bytes(renamed)


def _fields(message: bytes) -> Iterator[tuple[int, bytes | None, bytes]]:
    """The fields of a protocol buffer: number, content (None unless it has a length), and the field with its header."""
    at = 0
    while at < len(message):
        start = at
        key, at = _varint(message, at)
        kind = key & 7
        content = None
        if kind == 0:
            _, at = _varint(message, at)
        elif kind == 2:
            length, at = _varint(message, at)
            content, at = message[at : at + length], at + length
        else:
            at += {1: 8, 5: 4}[kind]
        yield key >> 3, content, message[start:at]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
