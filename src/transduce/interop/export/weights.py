"""The weights of our encoder-decoder under the names of transformers, from which every exporter starts."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.interop.huggingface import opus_sinusoids
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.model import Model
from transduce.tokenizers.tokenizer import EOS

VOCABULARY = ("embedding.weight_VD", "source_weight_VD", "output.weight_VD", "output.bias_V")
"""The weights with a row for each token."""
SOURCE_EMBEDDING = "model.encoder.embed_tokens.weight"
"""Name in transformers of the source's embeddings, if they are its own."""
_COMMON = {"decoder_cell": "attention", "norm_type": "layer", "bias": True, "source": "text", "share_positions": True}
"""Settings that exporters can express, unless they allow others."""


def require_exportable(model: Model, target: str, **allowed: Sequence[object]) -> EncoderDecoder:
    """The model as an encoder-decoder of text; raises an error unless `target` can express all of its settings.

    `allowed` are the values of further settings that the target has.
    """
    if not isinstance(model, EncoderDecoder):
        raise ModelError(f"{target} export is for encoder-decoder models, not for {model.config.architecture} models")
    config = model.config
    for name, values in {**{name: (value,) for name, value in _COMMON.items()}, **allowed}.items():
        if (value := getattr(config, name)) not in values:
            known = " or ".join(str(one).lower() for one in values)
            raise ModelError(f"{target} has no models with model.{name} = {str(value).lower()}, only {known}")
    width = config.d_model // config.num_heads
    if config.heads.kv_heads != config.num_heads or config.head_widths != (width, width):
        raise ModelError(f"{target} has no heads of a width other than d_model / num_heads, and no grouped heads")
    return model


def position_table(model: EncoderDecoder, length: int) -> Tensor:
    """The positional encodings (T, D): `length` sinusoids, or all learned ones."""
    positions = model.embedding.positions
    assert positions is not None
    if model.config.positions == "learned":
        return positions.table_TD.detach()
    positions.require(length)
    return positions.table_TD[:length]


def marker_rows(model: EncoderDecoder) -> dict[str, list[Any]]:
    """The rows of the markers that are never produced: other toolkits leave them out, or give them another bias."""
    weights = model.state_dict()
    return {name: weights[name][:EOS].tolist() for name in VOCABULARY if name in weights}


def to_halves(d_model: int) -> Tensor:
    """The permutation of the width after which sines and cosines lie side by side, as in Marian."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def has_opus_positions(model: EncoderDecoder) -> bool:
    """Whether the positions are learned ones with the values of Marian's sinusoids, as of imported models."""
    table_TD = position_table(model, 1)
    return model.config.positions == "learned" and torch.equal(table_TD, opus_sinusoids(*table_TD.shape))


def permute_width(weights: Mapping[str, Tensor], order_D: Tensor) -> dict[str, Tensor]:
    """Weights of our encoder-decoder with the width of the model in another order; the outputs stay the same."""
    permuted = {}
    for name, x in weights.items():
        module, kind = (["", *name.split(".")])[-2:]
        if kind in ("weight_VD", "source_weight_VD", "table_TD") or (
            kind == "weight" and module in ("qkv", "q", "kv", "inner")
        ):
            permuted[name] = x[:, order_D]
        elif module in ("out", "outer") or module.endswith("norm"):
            permuted[name] = x[order_D]
        else:
            permuted[name] = x
    return permuted


def transformers_weights(model: EncoderDecoder, order_D: Tensor | None = None) -> dict[str, Tensor]:
    """All weights but positions; with `order_D`, the width of the model is in this order.

    The shared embeddings are those of the target if the source has its own, `model.encoder.embed_tokens`.
    """
    config: EncoderDecoderConfig = model.config
    ours = {name: x.detach().float() for name, x in model.state_dict().items()}
    if order_D is not None:
        ours = permute_width(ours, order_D)
    theirs = {"model.shared.weight": ours["embedding.weight_VD"]}
    if config.source_vocab_size is not None:
        theirs[SOURCE_EMBEDDING] = ours["source_weight_VD"]
    theirs["lm_head.weight"] = ours["embedding.weight_VD" if config.tie_output else "output.weight_VD"]
    theirs["final_logits_bias"] = ours.get("output.bias_V", torch.zeros(model.vocab_size))[None]

    def put(name: str, own: str, parts: str = "") -> None:
        """A linear layer or a norm; a joint layer as several."""
        for kind in ("weight", "bias"):
            x = ours[f"{own}.{kind}"]
            if parts:
                split = zip(parts, x.chunk(len(parts)), strict=True)
                theirs.update({f"{name}.{part}_proj.{kind}": one for part, one in split})
            else:
                theirs[f"{name}.{kind}"] = x

    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        if config.norm == "pre":
            put(f"model.{side}.layer_norm", f"{side}_norm")
        for n in range(layers):
            own, name = f"{side}.{n}", f"model.{side}.layers.{n}"
            if side == "decoder" and config.decoder_cell == "ssru":
                theirs[f"{name}.self_attn.input.weight"] = ours[f"{own}.self_attention.input.weight"]
                put(f"{name}.self_attn.forget", f"{own}.self_attention.forget")
            else:
                put(f"{name}.self_attn", f"{own}.self_attention.qkv", "qkv")
                put(f"{name}.self_attn.out_proj", f"{own}.self_attention.out")
            put(f"{name}.self_attn_layer_norm", f"{own}.residuals.0.norm")
            if side == "decoder":
                put(f"{name}.encoder_attn.q_proj", f"{own}.cross_attention.q")
                put(f"{name}.encoder_attn", f"{own}.cross_attention.kv", "kv")
                put(f"{name}.encoder_attn.out_proj", f"{own}.cross_attention.out")
                put(f"{name}.encoder_attn_layer_norm", f"{own}.residuals.1.norm")
            put(f"{name}.fc1", f"{own}.feed_forward.inner")
            put(f"{name}.fc2", f"{own}.feed_forward.outer")
            put(f"{name}.final_layer_norm", f"{own}.residuals.{2 if side == 'decoder' else 1}.norm")
    return theirs
