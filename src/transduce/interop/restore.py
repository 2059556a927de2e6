"""Restoring a model that `transduce export` wrote: the card beside it tells what it was."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.interop.export.exporter import CARD
from transduce.interop.export.readme import ORIGINAL_NOTES
from transduce.interop.export.vocabulary import restore_vocabulary
from transduce.interop.export.weights import VOCABULARY, permute_width, to_halves
from transduce.interop.huggingface import opus_sinusoids
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.folder import read_card
from transduce.models.model import ModelConfig
from transduce.models.registry import build_config
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.imported import ImportedTokenizer, SentencePiecePair
from transduce.tokenizers.tokenizer import EOS

_POSITIONS, _BIAS = "embedding.positions.table_TD", "output.bias_V"


def restore(
    folder: Path, weights: Mapping[str, Tensor], tokenizer: ImportedTokenizer | TokenizerPair
) -> tuple[ModelConfig, dict[str, Tensor], AnyTokenizer, dict[str, Any]]:
    """Settings, weights, tokenizer and facts of the original, given what its files are as a foreign model."""
    card = read_card(folder, CARD)
    config = build_config(card["architecture"], card["model"], str(folder / CARD))
    if not isinstance(config, EncoderDecoderConfig):
        raise ModelError(f"{folder / CARD}: {card['architecture']} models are not exported")
    restored, facts = dict(weights), card["facts"]
    if config.positions != "learned":
        table_TD = restored.pop(_POSITIONS)
        if torch.equal(table_TD, opus_sinusoids(*table_TD.shape)):
            restored = permute_width(restored, to_halves(config.d_model).argsort())
    if not config.output_bias:
        restored.pop(_BIAS, None)
    markers = card["markers"]
    for name in VOCABULARY:
        if name in restored:
            restored[name][:EOS] = torch.tensor(markers[name])
    if "imported" in facts:
        return config, restored, tokenizer, facts
    languages = sorted({target for _, target in facts.get("directions", [])}) if facts.get("tagged") else []
    sides = (tokenizer.source, tokenizer.target) if isinstance(tokenizer, TokenizerPair) else (tokenizer,)
    found = []
    for side, tags in zip(sides, (languages, []), strict=False):  # tags begin sources
        if not isinstance(side, SentencePiecePair):
            raise ModelError(f"{folder}: the vocabulary is not the one that was exported")
        found.append(restore_vocabulary(side.models[0], tags))
    return config, restored, TokenizerPair(*found) if len(found) == 2 else found[0], facts


def original_notes(notes: str) -> str:
    """The notes of the original in those of an export."""
    text = notes.partition(ORIGINAL_NOTES)[2]
    return f"{text.strip()}\n" if text.strip() else ""
