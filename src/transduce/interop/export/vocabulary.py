"""The vocabulary of a model in the form of other toolkits: SentencePiece models and a list of pieces.

A tag of a language is a reserved symbol of private characters here; an exported one is written `<2de>`, so that people
can type it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import ModelError
from transduce.files.languages import is_language_code
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.imported import SentencePiecePair
from transduce.tokenizers.sentencepiece_file import rename_pieces
from transduce.tokenizers.symbols import language_tag
from transduce.tokenizers.tokenizer import Tokenizer


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
