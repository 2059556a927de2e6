"""Settings and weights of Hugging Face models, converted to ours.

Every converter takes the content of `config.json` and the weights by name, and gives settings and weights of ours.
Differences in form disappear here: the scale 1/sqrt(d_k), which T5 lacks, is undone in W_q, Whisper's missing bias of
keys is a bias of zeros, BERT's vector of the first segment is added to the positions, and unused positions are cut off.

Converters of encoder-decoders are here, those of other models in `huggingface_decoders.py` and
`huggingface_encoders.py`.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.interop.huggingface_decoders import gpt2, llama
from transduce.interop.huggingface_encoders import bert, vit
from transduce.interop.huggingface_weights import Converted, Settings, Source, Weights, activation_of
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.nn.positions import marian_sinusoids

_SIDES = ("decoder", "encoder")


def convert(settings: Settings, weights: Weights) -> Converted:
    """The settings and weights of our model that computes the same."""
    kind = settings.get("model_type")
    if kind not in CONVERTERS:
        raise ModelError(f"config.json: models of type {kind!r:.40} cannot be imported; use {', '.join(CONVERTERS)}")
    try:
        return CONVERTERS[kind](settings, weights)
    except KeyError as error:
        raise ModelError(f"the model of type {kind} has no weight or setting {error}") from None


def _t5(settings: Settings, weights: Weights) -> Converted:
    output_VD = weights.get("lm_head.weight", weights["shared.weight"])
    tied = torch.equal(output_VD, weights["shared.weight"])
    d_model, d_k = settings["d_model"], settings["d_kv"]
    config = EncoderDecoderConfig(
        encoder_layers=settings["num_layers"],
        decoder_layers=settings.get("num_decoder_layers") or settings["num_layers"],
        d_model=d_model,
        d_ff=settings["d_ff"],
        num_heads=settings["num_heads"],
        d_k=d_k,
        d_v=d_k,
        dropout=settings.get("dropout_rate", 0.1),
        positions="relative",
        norm="pre",
        norm_type="rms",
        norm_epsilon=settings.get("layer_norm_epsilon", 1e-6),
        activation=activation_of(settings.get("feed_forward_proj", "relu")),
        bias=False,
        embedding="plain",
        tie_output=tied,
    )
    ours = {"embedding.weight_VD": weights["shared.weight"]}
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        source = Source(weights, f"{side}.")
        ours[f"{side}_relative.weight_BH"] = source["block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        ours |= source.modules({f"{side}_norm": "final_layer_norm"})
        for n in range(layers):
            block, name = source.inside(f"block.{n}."), f"{side}.{n}"
            attention = block.inside("layer.0.SelfAttention.").scaled("q", math.sqrt(d_k))
            ours |= attention.joined(f"{name}.self_attention.qkv", ["q", "k", "v"])
            ours |= attention.modules({f"{name}.self_attention.out": "o"})
            if side == "decoder":
                cross = block.inside("layer.1.EncDecAttention.").scaled("q", math.sqrt(d_k))
                ours |= cross.joined(f"{name}.cross_attention.kv", ["k", "v"])
                ours |= cross.modules({f"{name}.cross_attention.q": "q", f"{name}.cross_attention.out": "o"})
            last = 2 if side == "decoder" else 1
            inner = block.inside(f"layer.{last}.DenseReluDense.")
            gated = config.activation in ("geglu", "swiglu")
            ours |= inner.joined(f"{name}.feed_forward.inner", ["wi_0", "wi_1"] if gated else ["wi"])
            ours |= inner.modules({f"{name}.feed_forward.outer": "wo"})
            ours |= block.modules({f"{name}.residuals.{i}.norm": f"layer.{i}.layer_norm" for i in range(last + 1)})
    if settings.get("scale_decoder_outputs", settings.get("tie_word_embeddings", True)):
        ours["decoder_norm.weight"] = ours["decoder_norm.weight"] / math.sqrt(d_model)
    if not tied:
        ours["output.weight_VD"] = output_VD
    return config, ours


def _bart(settings: Settings, weights: Weights) -> Converted:
    source = Source(weights, "model.")
    common = _fairseq_settings(settings)
    tables = {side: source[f"{side}.embed_positions.weight"][2:] for side in ("encoder", "decoder")}
    config = EncoderDecoderConfig(
        **(common | {"embedding": "normalized"}),
        max_positions=len(tables["encoder"]),
        output_bias=True,
        share_positions=False,
    )
    ours = {"embedding.weight_VD": source["shared.weight"], "output.bias_V": weights["final_logits_bias"][0]}
    for side, name in (("encoder", "source_embedding"), ("decoder", "embedding")):
        ours[f"{name}.positions.table_TD"] = tables[side]
        ours |= source.modules({f"{name}.norm": f"{side}.layernorm_embedding"})
    return config, ours | _fairseq_layers(source, config)


def _marian(settings: Settings, weights: Weights) -> Converted:
    """Marian's sinusoids, whose halves lie side by side, are loaded as a table of learned positions."""
    source = Source(weights, "model.")
    length, ours = settings["max_position_embeddings"], {}
    if settings.get("share_encoder_decoder_embeddings", True):
        embedding_VD = source["shared.weight"]
    else:
        embedding_VD, ours["source_weight_VD"] = (source[f"{side}.embed_tokens.weight"] for side in _SIDES)
    output_VD = weights.get("lm_head.weight", embedding_VD)
    tied = torch.equal(output_VD, embedding_VD)
    config = EncoderDecoderConfig(
        **_fairseq_settings(settings), max_positions=length, output_bias=True, tie_output=tied
    )
    _require_weights(config, weights)
    ours |= {
        "embedding.weight_VD": embedding_VD,
        "embedding.positions.table_TD": opus_sinusoids(length, config.d_model),
        "output.bias_V": weights["final_logits_bias"][0],
    }
    if not tied:
        ours["output.weight_VD"] = output_VD
    return config, ours | _fairseq_layers(source, config)


def _transformer(settings: Settings, weights: Weights) -> Converted:
    """A translation model of CTranslate2, with its own table of positions, or of Marian."""
    source = Source(weights, "model.")
    common = _fairseq_settings(settings)
    pre, tied = settings["normalize_before"], settings["tie_word_embeddings"]
    config = EncoderDecoderConfig(
        **(common | {"norm": "pre" if pre else "post", "norm_epsilon": settings.get("layer_norm_epsilon") or 1e-5}),
        max_positions=settings["max_position_embeddings"],
        output_bias=True,
        tie_output=tied,
        decoder_cell=settings.get("decoder_cell", "attention"),
    )
    table_TD = weights.get("model.decoder.embed_positions.weight")
    if table_TD is None:
        _require_weights(config, weights)
        table_TD = marian_sinusoids(config.max_positions, config.d_model)
    ours = {
        "embedding.weight_VD": source["shared.weight"],
        "embedding.positions.table_TD": table_TD,
        "output.bias_V": weights["final_logits_bias"][0],
    }
    if "source_vocab_size" in settings:
        ours["source_weight_VD"] = source["encoder.embed_tokens.weight"]
    if not tied:
        ours["output.weight_VD"] = weights["lm_head.weight"]
    if pre:
        ours |= source.modules({f"{side}_norm": f"{side}.layer_norm" for side in ("encoder", "decoder")})
    return config, ours | _fairseq_layers(source, config)


def _whisper(settings: Settings, weights: Weights) -> Converted:
    source = Source(weights, "model.")
    frames = 2 * settings["max_source_positions"]
    config = EncoderDecoderConfig(
        **(_fairseq_settings(settings) | {"norm": "pre", "embedding": "plain"}),
        max_positions=settings["max_target_positions"],
        source="audio",
        mel_bins=settings["num_mel_bins"],
        max_frames=frames,
    )
    ours = {
        "embedding.weight_VD": source["decoder.embed_tokens.weight"],
        "embedding.positions.table_TD": source["decoder.embed_positions.weight"],
        **source.modules({"encoder_norm": "encoder.layer_norm", "decoder_norm": "decoder.layer_norm"}),
    }
    for name, theirs in (("first", "encoder.conv1"), ("second", "encoder.conv2")):
        ours[f"source_embedding.{name}.weight"] = source[f"{theirs}.weight"].transpose(1, 2).flatten(1)
        ours[f"source_embedding.{name}.bias"] = source[f"{theirs}.bias"]
    return config, ours | _fairseq_layers(source, config)


def _fairseq_settings(settings: Settings) -> dict[str, Any]:
    """What BART, Marian and Whisper have in common."""
    if settings["encoder_ffn_dim"] != settings["decoder_ffn_dim"]:
        raise ModelError("config.json: encoder and decoder with different widths (ffn_dim) cannot be imported")
    heads = settings["encoder_attention_heads"]
    if settings.get("decoder_attention_heads", heads) != heads:
        raise ModelError("config.json: encoder and decoder with different numbers of heads cannot be imported")
    return {
        "encoder_layers": settings["encoder_layers"],
        "decoder_layers": settings["decoder_layers"],
        "d_model": settings["d_model"],
        "d_ff": settings["encoder_ffn_dim"],
        "num_heads": heads,
        "dropout": settings.get("dropout", 0.1),
        "positions": "learned",
        "activation": activation_of(settings.get("activation_function", "gelu")),
        "embedding": "scaled" if settings.get("scale_embedding") else "plain",
    }


def _fairseq_layers(source: Source, config: EncoderDecoderConfig) -> dict[str, Tensor]:
    ours: dict[str, Tensor] = {}
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for n in range(layers):
            layer, name = source.inside(f"{side}.layers.{n}."), f"{side}.{n}"
            modules = {"residuals.0.norm": "self_attn_layer_norm"}
            if side == "decoder" and config.decoder_cell == "ssru":
                modules |= {f"self_attention.{gate}": f"self_attn.{gate}" for gate in ("input", "forget")}
            else:
                ours |= layer.joined(f"{name}.self_attention.qkv", [f"self_attn.{x}_proj" for x in "qkv"], bias=True)
                modules["self_attention.out"] = "self_attn.out_proj"
            if side == "decoder":
                ours |= layer.joined(f"{name}.cross_attention.kv", [f"encoder_attn.{x}_proj" for x in "kv"], bias=True)
                modules |= {
                    "cross_attention.q": "encoder_attn.q_proj",
                    "cross_attention.out": "encoder_attn.out_proj",
                    "residuals.1.norm": "encoder_attn_layer_norm",
                }
            last = "residuals.2.norm" if side == "decoder" else "residuals.1.norm"
            modules |= {"feed_forward.inner": "fc1", "feed_forward.outer": "fc2", last: "final_layer_norm"}
            ours |= layer.modules({f"{name}.{own}": theirs for own, theirs in modules.items()})
    return ours


def _require_weights(config: EncoderDecoderConfig, weights: Weights) -> None:
    """Raise an error if there are fewer weights than the settings need, before anything is computed from them."""
    stored = sum(x.numel() for x in weights.values())
    table = config.max_positions * config.d_model  # made here, not stored
    if config.min_parameters(0) - table > stored:
        raise ModelError("it has fewer weights than its settings require")


def opus_sinusoids(length: int, d_model: int) -> Tensor:
    """The sinusoids of Marian in transformers: those of the paper, with all sines before all cosines."""
    half = (d_model + 1) // 2
    column = torch.arange(d_model, dtype=torch.float64)
    pair = torch.where(column < half, column, column - half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10_000 ** (2 * pair / d_model)
    return torch.where(column < half, angle.sin(), angle.cos()).float()


CONVERTERS: dict[str, Callable[[Settings, Weights], Converted]] = {
    "bart": _bart, "bert": bert, "gpt2": gpt2, "llama": llama, "marian": _marian, "roberta": bert, "t5": _t5,
    "transformer": _transformer, "vit": vit, "whisper": _whisper,
}  # fmt: skip
"""The type in `config.json`, and its converter."""
