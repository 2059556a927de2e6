"""Settings and weights of Hugging Face models, converted to ours.

Tables say what transformers calls each of our modules. Every converter takes the content of `config.json` and the
weights by name, and gives settings and weights of ours. Differences in form disappear here: the scale 1/sqrt(d_k),
which T5 lacks, is undone in W_q, Whisper's missing bias of keys is a bias of zeros, BERT's vector of the first segment
is added to the positions, and unused positions are cut off.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.model import ModelConfig
from transduce.nn.positions import marian_sinusoids

Settings = Mapping[str, Any]
Weights = Mapping[str, Tensor]
Converted = tuple[ModelConfig, dict[str, Tensor]]
Module = tuple[str, tuple[str, ...]]
"""Our name of a module and theirs; several are linear layers that we have as one."""
LayerNames = Mapping[str, tuple[str, ...]]
"""The modules of a layer."""

_ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "swish",
    "swish": "swish", "gated-gelu": "geglu", "gated-silu": "swiglu",
}  # fmt: skip

_GPT2_LAYER: LayerNames = {
    "self_attention.qkv": ("attn.c_attn",),
    "self_attention.out": ("attn.c_proj",),
    "feed_forward.inner": ("mlp.c_fc",),
    "feed_forward.outer": ("mlp.c_proj",),
    "residuals.0.norm": ("ln_1",),
    "residuals.1.norm": ("ln_2",),
}
_LLAMA_LAYER: LayerNames = {
    "self_attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.out": ("self_attn.o_proj",),
    "feed_forward.inner": ("mlp.gate_proj", "mlp.up_proj"),
    "feed_forward.outer": ("mlp.down_proj",),
    "residuals.0.norm": ("input_layernorm",),
    "residuals.1.norm": ("post_attention_layernorm",),
}
_BERT_LAYER: LayerNames = {
    "self_attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "self_attention.out": ("attention.output.dense",),
    "feed_forward.inner": ("intermediate.dense",),
    "feed_forward.outer": ("output.dense",),
    "residuals.0.norm": ("attention.output.LayerNorm",),
    "residuals.1.norm": ("output.LayerNorm",),
}
_VIT_LAYER: LayerNames = {
    **_BERT_LAYER,
    "self_attention.qkv": ("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    "residuals.0.norm": ("layernorm_before",),
    "residuals.1.norm": ("layernorm_after",),
}
_T5_ENCODER_LAYER: LayerNames = {
    "self_attention.qkv": ("layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v"),
    "self_attention.out": ("layer.0.SelfAttention.o",),
    "feed_forward.inner": ("layer.1.DenseReluDense.wi",),
    "feed_forward.outer": ("layer.1.DenseReluDense.wo",),
    "residuals.0.norm": ("layer.0.layer_norm",),
    "residuals.1.norm": ("layer.1.layer_norm",),
}
_T5_DECODER_LAYER: LayerNames = {
    **_T5_ENCODER_LAYER,
    "cross_attention.q": ("layer.1.EncDecAttention.q",),
    "cross_attention.kv": ("layer.1.EncDecAttention.k", "layer.1.EncDecAttention.v"),
    "cross_attention.out": ("layer.1.EncDecAttention.o",),
    "feed_forward.inner": ("layer.2.DenseReluDense.wi",),
    "feed_forward.outer": ("layer.2.DenseReluDense.wo",),
    "residuals.2.norm": ("layer.2.layer_norm",),
}
# BART, Marian and Whisper descend from fairseq, and share its names.
_FAIRSEQ_ENCODER_LAYER: LayerNames = {
    "self_attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.out": ("self_attn.out_proj",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "residuals.0.norm": ("self_attn_layer_norm",),
    "residuals.1.norm": ("final_layer_norm",),
}
_FAIRSEQ_DECODER_LAYER: LayerNames = {
    **_FAIRSEQ_ENCODER_LAYER,
    "cross_attention.q": ("encoder_attn.q_proj",),
    "cross_attention.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.out": ("encoder_attn.out_proj",),
    "residuals.1.norm": ("encoder_attn_layer_norm",),
    "residuals.2.norm": ("final_layer_norm",),
}
_SSRU: LayerNames = {"self_attention.input": ("self_attn.input",), "self_attention.forget": ("self_attn.forget",)}
"""In place of the decoder's self-attention."""


def convert(settings: Settings, weights: Weights) -> Converted:
    """The settings and weights of our model that computes the same."""
    kind = settings.get("model_type")
    if kind not in CONVERTERS:
        raise ModelError(f"config.json: models of type {kind!r:.40} cannot be imported; use {', '.join(CONVERTERS)}")
    try:
        return CONVERTERS[kind](settings, weights)
    except KeyError as error:
        raise ModelError(f"the model of type {kind} has no weight or setting {error}") from None


class _Source:
    """Weights whose names begin with a prefix, which some files leave out."""

    def __init__(self, weights: Weights, prefix: str = "") -> None:
        self._weights = weights
        self._prefix = prefix if any(name.startswith(prefix) for name in weights) else ""

    def __getitem__(self, name: str) -> Tensor:
        return self._weights[self._prefix + name]

    def take(self, modules: Iterable[Module], *, zero_bias: bool = False) -> dict[str, Tensor]:
        """Weight and, if there is one, bias of each module, under our name for it.

        With `zero_bias`, a bias that only some of the joined layers have is zeros in the others.
        """
        found = {}
        for ours, theirs in modules:
            matrices = [self[f"{name}.weight"] for name in theirs]
            biases = {name: self._weights.get(f"{self._prefix}{name}.bias") for name in theirs}
            if zero_bias and len(theirs) > 1:
                zeros = {name: torch.zeros(len(x), dtype=x.dtype) for name, x in zip(theirs, matrices, strict=True)}
                biases = {name: zeros[name] if bias is None else bias for name, bias in biases.items()}
            present = [bias for bias in biases.values() if bias is not None]
            found[f"{ours}.weight"] = torch.cat(matrices) if len(theirs) > 1 else matrices[0]
            if len(present) == len(theirs):
                found[f"{ours}.bias"] = torch.cat(present) if len(theirs) > 1 else present[0]
        return found


def _layers(side: str, theirs: str, count: int, layer: LayerNames) -> Iterator[Module]:
    """The modules of several layers, one after the other: an untrusted file may claim any number of them."""
    for n in range(count):
        for module, names in layer.items():
            yield f"{side}.{n}.{module}", tuple(f"{theirs}.{n}.{name}" for name in names)


def fairseq_modules(config: EncoderDecoderConfig) -> Iterator[Module]:
    """The modules of an encoder-decoder, with the names of BART, Marian and Whisper."""
    decoder = _FAIRSEQ_DECODER_LAYER
    if config.decoder_cell == "ssru":
        others = {name: theirs for name, theirs in decoder.items() if not name.startswith("self_attention.")}
        decoder = {**others, **_SSRU}
    yield from _layers("encoder", "encoder.layers", config.encoder_layers, _FAIRSEQ_ENCODER_LAYER)
    yield from _layers("decoder", "decoder.layers", config.decoder_layers, decoder)
    if config.norm == "pre":
        yield "encoder_norm", ("encoder.layer_norm",)
        yield "decoder_norm", ("decoder.layer_norm",)


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
    # These matrices are stored as (inputs, outputs).
    matrices = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    source = _Source({name: x.T if name.endswith(matrices) else x for name, x in weights.items()}, "transformer.")
    return config, {
        "embedding.weight_VD": source["wte.weight"],
        "embedding.positions.table_TD": source["wpe.weight"],
        **source.take(_layers("decoder", "h", config.layers, _GPT2_LAYER)),
        **source.take([("decoder_norm", ("ln_f",))]),
    }


def _llama(settings: Settings, weights: Weights) -> Converted:
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if (kind := rope.get("rope_type", rope.get("type", "default"))) != "default":
        raise ModelError(f"config.json: rotary positions of type {kind!r:.40} cannot be imported")
    config = DecoderOnlyConfig(
        **_bert_sizes(settings),
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
    ours = {
        "embedding.weight_VD": source["embed_tokens.weight"],
        **source.take(_layers("decoder", "layers", config.layers, _LLAMA_LAYER)),
        **source.take([("decoder_norm", ("norm",))]),
    }
    if not config.tie_output:
        ours["output.weight_VD"] = weights["lm_head.weight"]
    return config, ours


def _bert_sizes(settings: Settings) -> dict[str, Any]:
    return {
        "layers": settings["num_hidden_layers"],
        "d_model": settings["hidden_size"],
        "d_ff": settings["intermediate_size"],
        "num_heads": settings["num_attention_heads"],
    }


def _bert(settings: Settings, weights: Weights) -> Converted:
    """BERT, RoBERTa and models of their form, with a head for masked tokens, for classes, or none."""
    kind = settings["model_type"]
    source = _Source(weights, f"{kind}.")
    classifier = "classifier.weight" in weights or "classifier.out_proj.weight" in weights
    masked = "cls.predictions.bias" in weights or "lm_head.bias" in weights
    offset = 2 if kind == "roberta" else 0  # its first positions are for padding
    table_TD = source["embeddings.position_embeddings.weight"][offset:]
    segment_D = source["embeddings.token_type_embeddings.weight"][0]
    if table_TD.shape[1:] != segment_D.shape:
        raise ModelError("the embeddings of positions and segments have different widths")
    config = EncoderOnlyConfig(
        **_bert_sizes(settings),
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
        "embedding.positions.table_TD": table_TD + segment_D,
        **source.take([("embedding.norm", ("embeddings.LayerNorm",))]),
        **source.take(_layers("encoder", "encoder.layer", config.layers, _BERT_LAYER)),
    }
    heads = _Source(weights)
    if masked and kind == "roberta":
        ours |= heads.take([("head.linear", ("lm_head.dense",)), ("head.norm", ("lm_head.layer_norm",))])
        ours["output.bias_V"] = weights["lm_head.bias"]
    elif masked:
        transform = "cls.predictions.transform"
        ours |= heads.take([("head.linear", (f"{transform}.dense",)), ("head.norm", (f"{transform}.LayerNorm",))])
        ours["output.bias_V"] = weights["cls.predictions.bias"]
    elif classifier:
        pooler, output = "bert.pooler.dense", "classifier"
        if kind == "roberta":
            pooler, output = "classifier.dense", "classifier.out_proj"
        ours |= heads.take([("head.pooler", (pooler,))])
        ours |= {"head.weight_CD": weights[f"{output}.weight"], "head.bias_C": weights[f"{output}.bias"]}
    return config, ours


def _vit(settings: Settings, weights: Weights) -> Converted:
    """A Vision Transformer with its head for classes."""
    source = _Source(weights, "vit.")
    size, patch = settings["image_size"], settings["patch_size"]
    config = EncoderOnlyConfig(
        **_bert_sizes(settings),
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
    return config, {
        "embedding.class_token_D": source["embeddings.cls_token"].flatten(),
        "embedding.positions_TD": source["embeddings.position_embeddings"][0],
        "embedding.project.weight": source["embeddings.patch_embeddings.projection.weight"].flatten(1),
        "embedding.project.bias": source["embeddings.patch_embeddings.projection.bias"],
        "head.weight_CD": weights["classifier.weight"],
        "head.bias_C": weights["classifier.bias"],
        **source.take([("encoder_norm", ("layernorm",))]),
        **source.take(_layers("encoder", "encoder.layer", config.layers, _VIT_LAYER)),
    }


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
    scale = math.sqrt(d_k)
    source = _Source({name: x * scale if name.endswith("Attention.q.weight") else x for name, x in weights.items()})
    ours = {"embedding.weight_VD": weights["shared.weight"]}
    for side, layers, layer in (
        ("encoder", config.encoder_layers, _T5_ENCODER_LAYER),
        ("decoder", config.decoder_layers, _T5_DECODER_LAYER),
    ):
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        ours[f"{side}_relative.weight_BH"] = weights[bias]
        if config.activation in ("geglu", "swiglu"):
            (inner,) = layer["feed_forward.inner"]
            layer = {**layer, "feed_forward.inner": (f"{inner}_0", f"{inner}_1")}
        ours |= source.take([(f"{side}_norm", (f"{side}.final_layer_norm",))])
        ours |= source.take(_layers(side, f"{side}.block", layers, layer))
    if settings.get("scale_decoder_outputs", settings.get("tie_word_embeddings", True)):
        ours["decoder_norm.weight"] = ours["decoder_norm.weight"] / math.sqrt(d_model)
    if not tied:
        ours["output.weight_VD"] = output_VD
    return config, ours


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
        "activation": _activation(settings.get("activation_function", "gelu")),
        "embedding": "scaled" if settings.get("scale_embedding") else "plain",
    }


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
    return config, {
        "embedding.weight_VD": source["shared.weight"],
        "output.bias_V": weights["final_logits_bias"][0],
        "source_embedding.positions.table_TD": tables["encoder"],
        "embedding.positions.table_TD": tables["decoder"],
        **source.take([("source_embedding.norm", ("encoder.layernorm_embedding",))]),
        **source.take([("embedding.norm", ("decoder.layernorm_embedding",))]),
        **source.take(fairseq_modules(config), zero_bias=True),
    }


def _marian(settings: Settings, weights: Weights) -> Converted:
    """Marian's sinusoids, whose halves lie side by side, are loaded as a table of learned positions."""
    source = _Source(weights, "model.")
    length, ours = settings["max_position_embeddings"], {}
    if settings.get("share_encoder_decoder_embeddings", True):
        embedding_VD = source["shared.weight"]
    else:
        embedding_VD = source["decoder.embed_tokens.weight"]
        ours["source_weight_VD"] = source["encoder.embed_tokens.weight"]
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
    return config, ours | source.take(fairseq_modules(config), zero_bias=True)


def _transformer(settings: Settings, weights: Weights) -> Converted:
    """A translation model of CTranslate2, with its own table of positions, or of Marian."""
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
    return config, ours | source.take(fairseq_modules(config), zero_bias=True)


def _whisper(settings: Settings, weights: Weights) -> Converted:
    source = _Source(weights, "model.")
    config = EncoderDecoderConfig(
        **(_fairseq_settings(settings) | {"norm": "pre", "embedding": "plain"}),
        max_positions=settings["max_target_positions"],
        source="audio",
        mel_bins=settings["num_mel_bins"],
        max_frames=2 * settings["max_source_positions"],
    )
    ours = {
        "embedding.weight_VD": source["decoder.embed_tokens.weight"],
        "embedding.positions.table_TD": source["decoder.embed_positions.weight"],
    }
    for name, theirs in (("first", "encoder.conv1"), ("second", "encoder.conv2")):
        ours[f"source_embedding.{name}.weight"] = source[f"{theirs}.weight"].transpose(1, 2).flatten(1)
        ours[f"source_embedding.{name}.bias"] = source[f"{theirs}.bias"]
    return config, ours | source.take(fairseq_modules(config), zero_bias=True)


def _activation(name: str) -> Any:
    """Our name of an activation of `config.json`."""
    if name not in _ACTIVATIONS:
        raise ModelError(f"config.json: the activation {name!r:.40} is not supported; use {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _classes(settings: Settings) -> int:
    """Number of classes of a classifier; transformers leaves the default, 2, out."""
    return len(settings.get("id2label") or {"0": "", "1": ""})


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
    "bart": _bart, "bert": _bert, "gpt2": _gpt2, "llama": _llama, "marian": _marian, "roberta": _bert, "t5": _t5,
    "transformer": _transformer, "vit": _vit, "whisper": _whisper,
}  # fmt: skip
"""The type in `config.json`, and its converter."""
