"""Vocabularies on their way between toolkits: the order of ids of an imported one, and the form of an exported one.

An exported vocabulary is SentencePiece models and a list of pieces. A tag of a language is a reserved symbol of private
characters here; an exported one is written `<2de>`, so that people can type it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.files.languages import is_language_code
from transduce.interop.huggingface import Converted
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.transformer import TransformerConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.imported import SentencePiecePair, TokenOrder
from transduce.tokenizers.symbols import language_tag
from transduce.tokenizers.tokenizer import Tokenizer, rename_pieces

NEVER = -1e4
"""Bias of a token that must not receive probability: e^-10,000 is 0 in float32."""


def reorder_vocabulary(converted: Converted, order: TokenOrder, source_order: TokenOrder | None = None) -> Converted:
    """The model with rows of its vocabulary in this order: PAD, UNK, BOS and EOS have the ids 0 to 3.

    Probabilities of all original tokens stay the same: a copied token gets a bias by which only the original receives
    probability. `source_order` is for the source, if it has a vocabulary of its own.
    """
    config, weights = converted[0], dict(converted[1])
    assert isinstance(config, TransformerConfig)
    orders = dict.fromkeys(("embedding.weight_VD", "output.weight_VD", "output.bias_V"), order)
    if source_order is not None:
        assert isinstance(config, EncoderDecoderConfig)
        orders["source_weight_VD"] = source_order
        config = replace(config, source_vocab_size=len(source_order.originals))
    for name, side_order in orders.items():
        if name in weights:
            rows, size = len(weights[name]), side_order.size
            if rows != size:
                raise ModelError(f"{name} has {rows} rows, but the vocabulary has {size} tokens")
            weights[name] = weights[name][torch.tensor(side_order.originals)]
    predicts_tokens = not (isinstance(config, EncoderOnlyConfig) and config.classes)
    if order.copies and predicts_tokens:
        bias_V: Tensor = weights.get("output.bias_V", torch.zeros(len(order.originals)))
        bias_V[order.copies] = NEVER
        config, weights["output.bias_V"] = replace(config, output_bias=True), bias_V
    return config, weights


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
