"""Alignment of output tokens with source tokens by cross-attention."""

import torch
from torch import Tensor

from transduce.data.batch import Batch
from transduce.errors import ModelError
from transduce.models.model import Model
from transduce.nn.observe import observe_attention
from transduce.tokenizers.tokenizer import BOS, EOS


@torch.inference_mode()
def cross_attention(model: Model, sources: list[list[int]], outputs: list[list[int]]) -> Tensor:
    """The attention weights (B, T, S) of the output tokens and end marker over the source tokens and end marker.

    They are the mean over the heads of one layer, `Model.alignment_attention`.
    """
    attention = model.alignment_attention
    if attention is None:
        raise ModelError(f"a model of the architecture {model.config.architecture} has no cross-attention to align by")
    with observe_attention(attention) as recorded:
        sources = [[*source, EOS] for source in sources]
        model(Batch.of(model.device, src=sources, tgt=[[BOS, *output] for output in outputs]))
    (weights_BHTS,) = recorded.values()
    return weights_BHTS.mean(dim=1)
