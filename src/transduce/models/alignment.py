"""Which source tokens an output token looked at."""

import torch
from torch import Tensor

from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.observe import observe_attention
from transduce.nn.segments import pack_tokens
from transduce.text.tokenizer import BOS, EOS

_DEEP = 6


@torch.inference_mode()
def cross_attention(model: EncoderDecoder, sources: list[list[int]], outputs: list[list[int]]) -> Tensor:
    """The weights (B, T, S) with which output tokens, and the end marker after them, saw the source and its end marker.

    They are averaged over the heads of one layer: of six, the last but one has been found to align best (Garg et al.,
    2019, "Jointly Learning to Align and Translate with Transformer Models"), of two or three, the last (docs/log.md).
    """
    device = model.embedding.weight_VD.device
    layers = list(model.decoder_layers())
    layer = layers[-2 if len(layers) >= _DEEP else -1]
    with observe_attention(layer.cross_attention) as seen:
        model(
            *pack_tokens([[*source, EOS] for source in sources], device),
            *pack_tokens([[BOS, *output] for output in outputs], device),
        )
    (weights_BHTS,) = seen.values()
    return weights_BHTS.mean(dim=1)
