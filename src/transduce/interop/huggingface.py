"""Settings and weights of Hugging Face models, converted to ours.

Every converter takes the content of `config.json` and the weights by name, and gives settings and weights of ours.
Differences in form disappear here: the scale 1/sqrt(d_k), which T5 lacks, is undone in W_q, Whisper's missing bias of
keys is a bias of zeros, BERT's vector of the first segment is added to the positions, and unused positions are cut off.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.model import ModelConfig

Settings = Mapping[str, Any]
Weights = Mapping[str, Tensor]
Converted = tuple[ModelConfig, dict[str, Tensor]]

_ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "swish",
    "swish": "swish", "gated-gelu": "geglu", "gated-silu": "swiglu",
}  # fmt: skip

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


def _gpt2(settings: Settings, weights: Weights) -> Converted:
    config = DecoderOnlyConfig(
        layers=settings["n_layer"],
        d_model=settings["n_embd"],
        d_ff=settings.get("n_inner") or 4 * settings["n_embd"],
        num_heads=settings["n_head"],
        dropout=settings.get("resid_pdrop", 0.1),
        positions="learned",
        max_positions=settings["n_positions"],
        norm="pre",
        norm_epsilon=settings.get("layer_norm_epsilon", 1e-5),
        activation=_activation(settings.get("activation_function", "gelu_new")),
        embedding="plain",
    )
    source = _Source(weights, "transformer.")
    ours = {"embedding.weight_VD": source["wte.weight"], "embedding.positions.table_TD": source["wpe.weight"]}
    for n in range(config.layers):
        layer = source.inside(f"h.{n}.")
        transposed = {  # these matrices are stored as (inputs, outputs)
            "self_attention.qkv": "attn.c_attn", "self_attention.out": "attn.c_proj",
            "feed_forward.inner": "mlp.c_fc", "feed_forward.outer": "mlp.c_proj",
        }  # fmt: skip
        for name, theirs in transposed.items():
            ours[f"decoder.{n}.{name}.weight"] = layer[f"{theirs}.weight"].T
            ours[f"decoder.{n}.{name}.bias"] = layer[f"{theirs}.bias"]
        ours |= layer.modules({f"decoder.{n}.residuals.{i}.norm": f"ln_{i + 1}" for i in range(2)})
    return config, ours | source.modules({"decoder_norm": "ln_f"})


def _llama(settings: Settings, weights: Weights) -> Converted:
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise ModelError(f"config.json: rotary positions of type {rope['rope_type']!r:.40} cannot be imported")
    config = DecoderOnlyConfig(
        layers=settings["num_hidden_layers"],
        d_model=settings["hidden_size"],
        d_ff=settings["intermediate_size"],
        num_heads=settings["num_attention_heads"],
        kv_heads=settings.get("num_key_value_heads"),
        d_k=settings.get("head_dim"),
        d_v=settings.get("head_dim"),
        dropout=0.0,
        positions="rotary",
        max_positions=min(settings["max_position_embeddings"], 2**16),  # rotations have no limit
        rotary_base=rope.get("rope_theta") or settings.get("rope_theta", 10_000.0),
        norm="pre",
        norm_type="rms",
        norm_epsilon=settings["rms_norm_eps"],
        activation="swiglu",
        bias=False,
        embedding="plain",
        tie_output=settings.get("tie_word_embeddings", False),
    )
    source = _Source(weights, "model.")
    ours = {"embedding.weight_VD": source["embed_tokens.weight"]}
    for n in range(config.layers):
        layer, name = source.inside(f"layers.{n}."), f"decoder.{n}"
        ours |= layer.joined(f"{name}.self_attention.qkv", [f"self_attn.{x}_proj" for x in "qkv"])
        ours |= layer.joined(f"{name}.feed_forward.inner", ["mlp.gate_proj", "mlp.up_proj"])
        ours |= layer.modules({
            f"{name}.self_attention.out": "self_attn.o_proj",
            f"{name}.feed_forward.outer": "mlp.down_proj",
            f"{name}.residuals.0.norm": "input_layernorm",
            f"{name}.residuals.1.norm": "post_attention_layernorm",
        })  # fmt: skip
    if not config.tie_output:
        ours["output.weight_VD"] = weights["lm_head.weight"]
    return config, ours | source.modules({"decoder_norm": "norm"})


def _bert(settings: Settings, weights: Weights) -> Converted:
    """BERT, RoBERTa and models of their form, with a head for masked tokens, for classes, or none."""
    kind = settings["model_type"]
    source = _Source(weights, f"{kind}.")
    classifier = "classifier.weight" in weights or "classifier.out_proj.weight" in weights
    masked = "cls.predictions.bias" in weights or "lm_head.bias" in weights
    offset = 2 if kind == "roberta" else 0  # its first positions are for padding
    table_TD = source["embeddings.position_embeddings.weight"][offset:]
    config = EncoderOnlyConfig(
        layers=settings["num_hidden_layers"],
        d_model=settings["hidden_size"],
        d_ff=settings["intermediate_size"],
        num_heads=settings["num_attention_heads"],
        dropout=settings.get("hidden_dropout_prob", 0.1),
        positions="learned",
        max_positions=len(table_TD),
        norm_epsilon=settings.get("layer_norm_eps", 1e-12),
        activation=_activation(settings.get("hidden_act", "gelu")),
        embedding="normalized",
        output_bias=masked,
        masked_head=masked,
        classes=_classes(settings) if classifier else 0,
        pooler=classifier,
    )
    ours = {
        "embedding.weight_VD": source["embeddings.word_embeddings.weight"],
        "embedding.positions.table_TD": table_TD + source["embeddings.token_type_embeddings.weight"][0],
        **source.modules({"embedding.norm": "embeddings.LayerNorm"}),
    }
    for n in range(config.layers):
        layer, name = source.inside(f"encoder.layer.{n}."), f"encoder.{n}"
        ours |= layer.joined(f"{name}.self_attention.qkv", [f"attention.self.{x}" for x in ("query", "key", "value")])
        ours |= layer.modules({
            f"{name}.self_attention.out": "attention.output.dense",
            f"{name}.residuals.0.norm": "attention.output.LayerNorm",
            f"{name}.feed_forward.inner": "intermediate.dense",
            f"{name}.feed_forward.outer": "output.dense",
            f"{name}.residuals.1.norm": "output.LayerNorm",
        })  # fmt: skip
    everything = _Source(weights, "")
    if masked and kind == "roberta":
        ours |= everything.modules({"head.linear": "lm_head.dense", "head.norm": "lm_head.layer_norm"})
        ours["output.bias_V"] = weights["lm_head.bias"]
    elif masked:
        transform = "cls.predictions.transform"
        ours |= everything.modules({"head.linear": f"{transform}.dense", "head.norm": f"{transform}.LayerNorm"})
        ours["output.bias_V"] = weights["cls.predictions.bias"]
    elif classifier:
        pooler, output = "bert.pooler.dense", "classifier"
        if kind == "roberta":
            pooler, output = "classifier.dense", "classifier.out_proj"
        ours |= everything.modules({"head.pooler": pooler})
        ours |= {"head.weight_CD": weights[f"{output}.weight"], "head.bias_C": weights[f"{output}.bias"]}
    return config, ours


def _vit(settings: Settings, weights: Weights) -> Converted:
    source = _Source(weights, "vit.")
    size, patch = settings["image_size"], settings["patch_size"]
    config = EncoderOnlyConfig(
        layers=settings["num_hidden_layers"],
        d_model=settings["hidden_size"],
        d_ff=settings["intermediate_size"],
        num_heads=settings["num_attention_heads"],
        dropout=settings.get("hidden_dropout_prob", 0.0),
        norm="pre",
        norm_epsilon=settings.get("layer_norm_eps", 1e-12),
        activation=_activation(settings.get("hidden_act", "gelu")),
        source="image",
        classes=_classes(settings),
        image_height=size,
        image_width=size,
        channels=settings.get("num_channels", 3),
        patch_size=patch,
    )
    ours = {
        "embedding.class_token_D": source["embeddings.cls_token"].flatten(),
        "embedding.positions_TD": source["embeddings.position_embeddings"][0],
        "embedding.project.weight": source["embeddings.patch_embeddings.projection.weight"].flatten(1),
        "embedding.project.bias": source["embeddings.patch_embeddings.projection.bias"],
        **source.modules({"encoder_norm": "layernorm"}),
        "head.weight_CD": weights["classifier.weight"],
        "head.bias_C": weights["classifier.bias"],
    }
    for n in range(config.layers):
        layer, name = source.inside(f"encoder.layer.{n}."), f"encoder.{n}"
        ours |= layer.joined(
            f"{name}.self_attention.qkv", [f"attention.attention.{x}" for x in ("query", "key", "value")]
        )
        ours |= layer.modules({
            f"{name}.self_attention.out": "attention.output.dense",
            f"{name}.residuals.0.norm": "layernorm_before",
            f"{name}.feed_forward.inner": "intermediate.dense",
            f"{name}.feed_forward.outer": "output.dense",
            f"{name}.residuals.1.norm": "layernorm_after",
        })  # fmt: skip
    return config, ours


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
        activation=_activation(settings.get("feed_forward_proj", "relu")),
        bias=False,
        embedding="plain",
        tie_output=tied,
    )
    ours = {"embedding.weight_VD": weights["shared.weight"]}
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        source = _Source(weights, f"{side}.")
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
    source = _Source(weights, "model.")
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
    source = _Source(weights, "model.")
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
    ours |= {
        "embedding.weight_VD": embedding_VD,
        "embedding.positions.table_TD": opus_sinusoids(length, embedding_VD.shape[1]),
        "output.bias_V": weights["final_logits_bias"][0],
    }
    if not tied:
        ours["output.weight_VD"] = output_VD
    return config, ours | _fairseq_layers(source, config)


def _transformer(settings: Settings, weights: Weights) -> Converted:
    """A translation model of CTranslate2 or Marian, with its own table of positions."""
    source = _Source(weights, "model.")
    common = _fairseq_settings(settings)
    pre, tied = settings["normalize_before"], settings["tie_word_embeddings"]
    config = EncoderDecoderConfig(
        **(common | {"norm": "pre" if pre else "post", "norm_epsilon": settings.get("layer_norm_epsilon") or 1e-5}),
        max_positions=settings["max_position_embeddings"],
        output_bias=True,
        tie_output=tied,
        decoder_cell=settings.get("decoder_cell", "attention"),
    )
    ours = {
        "embedding.weight_VD": source["shared.weight"],
        "embedding.positions.table_TD": source["decoder.embed_positions.weight"],
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
    source = _Source(weights, "model.")
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
    return {
        "encoder_layers": settings["encoder_layers"],
        "decoder_layers": settings["decoder_layers"],
        "d_model": settings["d_model"],
        "d_ff": settings["encoder_ffn_dim"],
        "num_heads": settings["encoder_attention_heads"],
        "dropout": settings.get("dropout", 0.1),
        "positions": "learned",
        "activation": _activation(settings.get("activation_function", "gelu")),
        "embedding": "scaled" if settings.get("scale_embedding") else "plain",
    }


def _fairseq_layers(source: "_Source", config: EncoderDecoderConfig) -> dict[str, Tensor]:
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


def opus_sinusoids(length: int, d_model: int) -> Tensor:
    """The sinusoids of Marian in transformers: those of the paper, with all sines before all cosines."""
    half = (d_model + 1) // 2
    column = torch.arange(d_model, dtype=torch.float64)
    pair = torch.where(column < half, column, column - half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10_000 ** (2 * pair / d_model)
    return torch.where(column < half, angle.sin(), angle.cos()).float()


class _Source:
    """Weights whose names begin with a prefix, which some files leave out."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self._weights, self._prefix = weights, prefix
        if not any(name.startswith(prefix) for name in weights):
            self._prefix = prefix.partition(".")[2]

    def __getitem__(self, name: str) -> Tensor:
        return self._weights[self._prefix + name]

    def inside(self, prefix: str) -> "_Source":
        """The weights of an inner module."""
        inner = _Source({}, "")
        inner._weights, inner._prefix = self._weights, self._prefix + prefix
        return inner

    def scaled(self, name: str, factor: float) -> "_Source":
        """The same weights, one multiplied by a factor."""
        path = f"{self._prefix}{name}.weight"
        scaled = _Source({}, "")
        scaled._weights, scaled._prefix = {**self._weights, path: self._weights[path] * factor}, self._prefix
        return scaled

    def modules(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Weight and, if there is one, bias of each module, under our name for it."""
        found = {}
        for ours, theirs in names.items():
            found[f"{ours}.weight"] = self[f"{theirs}.weight"]
            if f"{self._prefix}{theirs}.bias" in self._weights:
                found[f"{ours}.bias"] = self[f"{theirs}.bias"]
        return found

    def joined(self, ours: str, theirs: list[str], *, bias: bool | None = None) -> dict[str, Tensor]:
        """Several linear layers as one; with `bias`, a missing bias is zeros."""
        matrices = [self[f"{name}.weight"] for name in theirs]
        biases = [self._weights.get(f"{self._prefix}{name}.bias") for name in theirs]
        found = {f"{ours}.weight": torch.cat(matrices)}
        if bias or all(x is not None for x in biases):
            zeros = [torch.zeros(len(matrix), dtype=matrix.dtype) for matrix in matrices]
            found[f"{ours}.bias"] = torch.cat([z if x is None else x for x, z in zip(biases, zeros, strict=True)])
        return found


def _activation(name: str) -> Any:
    if name not in _ACTIVATIONS:
        raise ModelError(f"config.json: the activation {name!r:.40} is not supported; use {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _classes(settings: Settings) -> int:
    return len(settings.get("id2label") or {"0": "", "1": ""})


CONVERTERS: dict[str, Callable[[Settings, Weights], Converted]] = {
    "bart": _bart, "bert": _bert, "gpt2": _gpt2, "llama": _llama, "marian": _marian, "roberta": _bert, "t5": _t5,
    "transformer": _transformer, "vit": _vit, "whisper": _whisper,
}  # fmt: skip
"""The type in `config.json`, and its converter."""
