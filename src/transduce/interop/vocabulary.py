"""Reordering an imported vocabulary: PAD, UNK, BOS and EOS get the ids 0 to 3, and all other tokens follow."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.interop.huggingface_weights import Converted
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.transformer import TransformerConfig
from transduce.tokenizers.imported import TokenOrder

NEVER = -1e4
"""Bias of a token that must not receive probability: e^-10,000 is 0 in float32."""


def reorder_vocabulary(converted: Converted, order: TokenOrder, source_order: TokenOrder | None = None) -> Converted:
    """The model with rows of its vocabulary in this order; probabilities of all original tokens stay the same.

    A copied token gets a bias by which only the original receives probability. `source_order` is for the source, if it
    has a vocabulary of its own.
    """
    config, weights = cast(TransformerConfig, converted[0]), dict(converted[1])
    originals = torch.tensor(order.originals)
    orders = dict.fromkeys(("embedding.weight_VD", "output.weight_VD", "output.bias_V"), order)
    if source_order is not None:
        orders["source_weight_VD"] = source_order
        config = replace(cast(EncoderDecoderConfig, config), source_vocab_size=len(source_order.originals))
    for name, own in orders.items():
        if name in weights:
            if len(weights[name]) != own.size:
                raise ModelError(f"{name} has {len(weights[name])} rows, but the vocabulary has {own.size} tokens")
            weights[name] = weights[name][torch.tensor(own.originals)]
    predicts_tokens = not (isinstance(config, EncoderOnlyConfig) and config.classes)
    if order.copies and predicts_tokens:
        bias_V: Tensor = weights.get("output.bias_V", torch.zeros(len(originals)))
        bias_V[order.copies] = NEVER
        config, weights["output.bias_V"] = replace(config, output_bias=True), bias_V
    return config, weights
