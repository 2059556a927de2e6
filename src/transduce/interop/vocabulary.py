"""Reordering an imported vocabulary: PAD, UNK, BOS and EOS get the ids 0 to 3, and all other tokens follow."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.interop.huggingface_weights import Converted
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.transformer import TransformerConfig
from transduce.text.token_order import TokenOrder

NEVER = -1e4
"""Bias of a token that must not receive probability: e^-10,000 is 0 in float32."""


def reorder_vocabulary(converted: Converted, order: TokenOrder) -> Converted:
    """The model with rows of its vocabulary in this order; probabilities of all original tokens stay the same.

    A copied token gets a bias by which only the original receives probability.
    """
    config, weights = cast(TransformerConfig, converted[0]), dict(converted[1])
    originals = torch.tensor(order.originals)
    for name in ("embedding.weight_VD", "output.weight_VD", "output.bias_V"):
        if name in weights:
            if len(weights[name]) != order.size:
                raise ModelError(f"{name} has {len(weights[name])} rows, but the vocabulary has {order.size} tokens")
            weights[name] = weights[name][originals]
    predicts_tokens = not (isinstance(config, EncoderOnlyConfig) and config.classes)
    if order.copies and predicts_tokens:
        bias_V: Tensor = weights.get("output.bias_V", torch.zeros(len(originals)))
        bias_V[order.copies] = NEVER
        config, weights["output.bias_V"] = replace(config, output_bias=True), bias_V
    return config, weights
