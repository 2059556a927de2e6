"""Models of transformers, converted to ours: settings and weights of the family that `transduce import` reads.

`transformers.toml` tells what becomes of every setting, and the library's names of our modules. A converter takes the
settings of `config.json`, completed with the library's defaults, and the weights by name. Differences in form disappear
here: scales of attention and of embeddings are part of the weights, a missing bias is zeros, BERT's vector of the first
segment is added to the positions, and unused positions are cut off.
"""

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from transduce.errors import ModelError
from transduce.interop.multilingual import MULTILINGUAL
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.model import ModelConfig
from transduce.nn.positions import marian_sinusoids

Settings = Mapping[str, Any]
Converted = tuple[ModelConfig, dict[str, Tensor]]
Module = tuple[str, tuple[str, ...]]
"""Our name of a module and theirs; several are linear layers that we have as one."""

_ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "swish",
    "swish": "swish",
}  # fmt: skip
_GATED = {"gelu_new": "geglu", "gelu_pytorch_tanh": "geglu", "silu": "swiglu", "swish": "swiglu"}
_ROTARY_SCALING = {
    "default": {}, "linear": {"factor": "rotary_factor"},
    "llama3": {
        "factor": "rotary_factor", "low_freq_factor": "rotary_low", "high_freq_factor": "rotary_high",
        "original_max_position_embeddings": "rotary_original",
    },
}  # fmt: skip
"""The ways of scaling rotary positions, with our settings."""
_GLOBAL_EVERY = {"gemma2": 2, "gemma3_text": 6}
"""Every n-th layer has no window, if the settings do not tell."""
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", dict: "a table"}
_JOINED = ("read", "only", "aliases", "fields", "fixed", "layer", "gguf", "gguf_layer")
_TOLERANCE = 1e-2
"""Largest difference of stored sinusoids, which may be of half precision, from computed ones."""


@cache
def type_table(kind: str) -> dict[str, Any]:
    """What `transformers.toml` says about a type of models."""
    tables = tomllib.loads(files("transduce.interop").joinpath("transformers.toml").read_text(encoding="utf-8"))
    table: dict[str, Any] = tables[kind]
    base = tables.get(table.get("same", ""), {})
    joined = {name: {**base.get(name, {}), **table.get(name, {})} for name in _JOINED}
    for removed in table.get("removed", []):
        joined["read"].pop(removed, None)
        joined["fields"] = {ours: theirs for ours, theirs in joined["fields"].items() if theirs != removed}
    groups = [*tables["ignored"], *base.get("ignored", []), *table.get("ignored", [])]
    return {**base, **table, **joined, "ignored": {name for group in groups for name in group["names"]}}


def require_known_type(settings: Settings) -> str:
    """The type of a model; raises an error unless it can be imported."""
    kind = settings.get("model_type")
    if not isinstance(kind, str):
        raise ModelError("config.json: model_type is missing")
    if kind not in CONVERTERS:
        raise ModelError(f"config.json: models of type {kind!r:.40} cannot be imported; use {', '.join(CONVERTERS)}")
    return kind


def complete_settings(settings: Settings) -> dict[str, Any]:
    """The settings with defaults for those that are missing; raises an error for one that cannot be imported."""
    table = type_table(require_known_type(settings))
    read, only, aliases = (table[name] for name in ("read", "only", "aliases"))
    found = {name: table.get("null", {}).get(name) if value is None else value for name, value in settings.items()}
    complete: dict[str, Any] = {**read, **{name: value for name, value in found.items() if value is not None}}
    for name, setting in aliases.items():
        if name in complete and setting not in settings:
            complete[setting] = complete[name]
    for name, value in complete.items():
        shown = f"{name} = {json.dumps(value):.60}"
        if name in read:
            kind = type(read[name])
            accepted = (int, float) if kind is float else kind
            if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
                raise ModelError(f"config.json: {name} must be {_TYPES[kind]}, not {json.dumps(value):.60}")
        elif name in aliases:
            if value != complete[aliases[name]]:
                raise ModelError(f"config.json: {shown} contradicts {aliases[name]} = {complete[aliases[name]]!s:.40}")
        elif name in only:
            if value != only[name]:
                raise ModelError(f"config.json: {shown} cannot be imported, only {json.dumps(only[name])}")
        elif name not in table["ignored"] and value not in (False, "", [], {}):
            raise ModelError(
                f"config.json: {shown:.100} is not a known setting; remove it if it does not change what is computed"
            )
    heads, classes = table.get("heads", []), complete.get("architectures") or []
    if not isinstance(classes, list) or (classes and not any(name in heads for name in classes)):
        raise ModelError(f"config.json: {json.dumps(classes):.60} cannot be imported; use {' or '.join(heads)}")
    return complete


def convert(settings: Settings, weights: Mapping[str, Tensor]) -> Converted:
    """The settings and weights of our model that computes the same."""
    kind = require_known_type(settings)
    source = _Weights(weights, _PREFIXES.get(kind, f"{kind}."))
    converted = CONVERTERS[kind](complete_settings(settings), source)
    source.require_all_used(type_table(kind)["unused"])
    return converted


class _Weights:
    """Weights by their names without the prefix, which some files leave out."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str) -> None:
        self._weights = {name.removeprefix(prefix): x for name, x in weights.items()}
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._weights:
            raise ModelError(f"it has no weight {name}, which its settings require")
        self._used.add(name)
        return self._weights[name]

    def rename(self, names: Mapping[str, str]) -> None:
        """Replace parts of names."""
        for theirs, name in names.items():
            self._weights = {old.replace(theirs, name): x for old, x in self._weights.items()}

    def find(self, name: str) -> Tensor:
        """The weight, or a zero if there is none."""
        return self[name] if name in self else torch.zeros(1)

    @property
    def count(self) -> int:
        """Number of elements."""
        return sum(x.numel() for x in self._weights.values())

    def transpose(self, *ends: str) -> None:
        """Transpose matrices whose names end so."""
        self._weights = {name: x.T if name.endswith(ends) else x for name, x in self._weights.items()}

    def take(self, modules: Iterable[Module], *, zero_bias: bool = False) -> dict[str, Tensor]:
        """Weight and bias of each module, under our name for it; with `zero_bias`, a missing bias is zeros."""
        found = {}
        for ours, theirs in modules:
            matrices, names = [self[f"{name}.weight"] for name in theirs], [f"{name}.bias" for name in theirs]
            found[f"{ours}.weight"] = torch.cat(matrices) if len(theirs) > 1 else matrices[0]
            fills = zero_bias and matrices[0].dim() == 2 and not ours.endswith(".input")  # of an SSRU, without bias
            if fills or all(name in self for name in names):
                pairs = zip(names, matrices, strict=True)
                biases = [self[name] if name in self else x.new_zeros(len(x)) for name, x in pairs]
                found[f"{ours}.bias"] = torch.cat(biases) if len(theirs) > 1 else biases[0]
        return found

    def output(self, name: str, embedding_VD: Tensor, *, tied: bool = True) -> dict[str, Tensor]:
        """The output projection; nothing if it is the embeddings."""
        if name not in self and not tied:
            raise ModelError(f"it has no weight {name}, although tie_word_embeddings is false")
        if name not in self or torch.equal(self[name], embedding_VD):
            return {}
        return {"output.weight_VD": self[name]}

    def require_all_used(self, patterns: Iterable[str]) -> None:
        pattern = re.compile("|".join(patterns))
        if unused := sorted(name for name in self._weights.keys() - self._used if not pattern.fullmatch(name)):
            raise ModelError(f"it has the weight {unused[0]:.80}, which a model with its settings does not have here")


def _layers(side: str, theirs: str, count: int, layer: Mapping[str, Iterable[str]]) -> Iterator[Module]:
    """The modules of several layers, one after the other: an untrusted file may claim any number of them."""
    for n in range(count):
        for module, names in layer.items():
            yield f"{side}.{n}.{module}", tuple(f"{theirs}.{n}.{name}" for name in names)


def fairseq_modules(config: EncoderDecoderConfig) -> Iterator[Module]:
    """The modules of an encoder-decoder, with the names of BART, Marian and Whisper."""
    table = type_table("bart")
    decoder = table["layer"] | table["decoder_layer"]
    if config.decoder_cell == "ssru":
        others = {name: theirs for name, theirs in decoder.items() if not name.startswith("self_attention.")}
        decoder = others | table["ssru"]
    yield from _layers("encoder", "encoder.layers", config.encoder_layers, table["layer"])
    yield from _layers("decoder", "decoder.layers", config.decoder_layers, decoder)
    if config.norm == "pre":
        yield "encoder_norm", ("encoder.layer_norm",)
        yield "decoder_norm", ("decoder.layer_norm",)


def place(name: str) -> tuple[str, int | None, str]:
    """Side, number of the layer (None after the last one) and module of a name of `fairseq_modules`."""
    match = re.fullmatch(r"(encoder|decoder)\.(?:layers\.(\d+)\.)?(.+)", name)
    assert match
    return match[1], None if match[2] is None else int(match[2]), match[3]


def _gpt2(settings: Settings, weights: _Weights) -> Converted:
    weights.transpose("c_attn.weight", "c_proj.weight", "c_fc.weight")  # stored as (inputs, outputs)
    width, heads = settings["n_embd"], settings["n_head"]
    output = weights.output("lm_head.weight", weights["wte.weight"], tied=settings["tie_word_embeddings"])
    d_ff = settings["n_inner"] or 4 * width
    activation = _activation(settings["activation_function"])
    config = DecoderOnlyConfig(**_same(settings), d_ff=d_ff, activation=activation, tie_output=not output)
    ours = {
        "embedding.weight_VD": weights["wte.weight"],
        "embedding.positions.table_TD": weights["wpe.weight"],
        **weights.take(_layers("decoder", "h", config.layers, type_table("gpt2")["layer"])),
        **weights.take([("decoder_norm", ("ln_f",))]),
        **output,
    }
    for n in range(config.layers):
        scale = 1.0 if settings["scale_attn_weights"] else math.sqrt(width // heads)
        scale /= n + 1 if settings["scale_attn_by_inverse_layer_idx"] else 1
        for name in (f"decoder.{n}.self_attention.qkv.{kind}" for kind in ("weight", "bias")):
            ours[name] = torch.cat([ours[name][:width] * scale, ours[name][width:]])
    return config, ours


def _rotary(settings: Settings) -> dict[str, Any]:
    """Our settings of rotary positions; layers with a window may have others than the rest (Gemma 3)."""
    parameters, scaling = settings["rope_parameters"], settings["rope_scaling"]
    local: dict[str, Any] = {}
    if "full_attention" in parameters or "rope_local_base_freq" in settings:
        table = {
            "rope_theta": settings.get("rope_local_base_freq", 10_000.0),
            **parameters.get("sliding_attention", {}),
        }
        if table.pop("rope_type", "default") != "default" or table.keys() != {"rope_theta"}:
            raise ModelError(f"config.json: rotary positions of local layers with {[*table]!s:.60} cannot be imported")
        local = {"local_rotary_base": float(table["rope_theta"])}
        parameters = parameters.get("full_attention", parameters)
    rope = {"rope_theta": settings["rope_theta"], **scaling, **parameters}
    base, kind = rope.pop("rope_theta"), rope.pop("rope_type", rope.pop("type", "default"))
    names = _ROTARY_SCALING.get(kind, {})
    if kind not in _ROTARY_SCALING or not rope.keys() <= names.keys():
        raise ModelError(f"config.json: rotary positions of type {kind!r:.40} with {[*rope]!s:.60} cannot be imported")
    if missing := names.keys() - rope.keys():
        raise ModelError(f"config.json: rotary positions of type {kind!r:.40} need {min(missing)}")
    values = {names[name]: value for name, value in rope.items()}
    return local | values | {"rotary_base": base, "rotary_scaling": "none" if kind == "default" else kind}


def _window(settings: Settings) -> dict[str, Any]:
    """Our settings of sliding windows: of all layers, or of all but every n-th one."""
    used, window = settings.get("use_sliding_window", True), settings.get("sliding_window") or None
    kinds = settings.get("layer_types") or []
    if not used or window is None or (kinds and "sliding_attention" not in kinds):
        return {}
    count = settings["num_hidden_layers"]
    if not kinds:
        every = _GLOBAL_EVERY.get(settings["model_type"], 0)
        every = settings.get("sliding_window_pattern", settings.get("_sliding_window_pattern", every))
        if settings["model_type"] in ("qwen2", "qwen3"):
            raise ModelError("config.json: use_sliding_window = true needs layer_types")
        return {"window": window, "global_every": every}
    whole = [number for number, kind in enumerate(kinds, start=1) if kind == "full_attention"]
    every = whole[0] if whole else 0
    if len(kinds) != count or whole != ([*range(every, count + 1, every)] if every else []):
        raise ModelError("config.json: layer_types cannot be imported, only a window in all layers but every N-th")
    return {"window": window, "global_every": every}


def _llama(settings: Settings, weights: _Weights) -> Converted:
    """Llama and its relatives: Mistral, Qwen2, Qwen3, Gemma 2 and 3."""
    kind, rotary, window = settings["model_type"], _rotary(settings), _window(settings)
    if not window:
        rotary.pop("local_rotary_base", None)
    embedding_VD, width = weights["embed_tokens.weight"], settings["head_dim"] or None
    output = weights.output("lm_head.weight", embedding_VD, tied=settings["tie_word_embeddings"])
    bias = settings.get("attention_bias", kind == "qwen2") or settings.get("mlp_bias", False)
    config = DecoderOnlyConfig(
        **_same(settings), kv_heads=settings["num_key_value_heads"] or None, d_k=width, d_v=width, **rotary, **window,
        max_positions=min(settings["max_position_embeddings"], 2**16),  # rotations have no limit
        activation=_activation(settings["hidden_act"], _GATED), bias=bias, tie_output=not output,
        score_cap=settings.get("attn_logit_softcapping") or None,
        logit_cap=settings.get("final_logit_softcapping") or None,
    )  # fmt: skip
    ours = {
        **weights.take(_layers("decoder", "layers", config.layers, type_table(kind)["layer"]), zero_bias=bias),
        **weights.take([("decoder_norm", ("norm",))]),
    }
    if kind in _GLOBAL_EVERY:  # Gemma's norms multiply by 1 + weight, and its scores have a scale of their own
        d_k, _ = config.head_widths
        scale, queries = math.sqrt(d_k / settings["query_pre_attn_scalar"]), config.num_heads * d_k
        for name, x in ours.items():
            if name.endswith("norm.weight"):
                ours[name] = (1 + x) * (scale if name.endswith("q_norm.weight") else 1)
            elif ".qkv." in name and not config.qk_norm:
                ours[name] = torch.cat([x[:queries] * scale, x[queries:]])
    return config, {"embedding.weight_VD": embedding_VD, **ours, **output}


def _same(settings: Settings) -> dict[str, Any]:
    """Our settings that have the value of one of theirs, or one that all models of the type have."""
    table = type_table(settings["model_type"])
    return table["fixed"] | {ours: settings[theirs] for ours, theirs in table["fields"].items()}


def _bert(settings: Settings, weights: _Weights) -> Converted:
    """BERT, RoBERTa and models of their form, with a head for masked tokens, for classes, or none."""
    roberta = settings["model_type"] in ("roberta", "xlm-roberta")
    pooler, classes = ("classifier.dense", "classifier.out_proj") if roberta else ("pooler.dense", "classifier")
    classifier = f"{classes}.weight" in weights
    head, norm = ("lm_head", "layer_norm") if roberta else ("cls.predictions", "transform.LayerNorm")
    masked = f"{head}.bias" in weights or f"{head}.decoder.bias" in weights
    offset = settings["pad_token_id"] + 1 if roberta else 0  # its first positions are for padding
    table_TD = weights["embeddings.position_embeddings.weight"][offset:]
    segments = "embeddings.token_type_embeddings.weight"
    segment_D = weights[segments][0] if segments in weights else torch.zeros(table_TD.shape[1])
    if table_TD.shape[1:] != segment_D.shape:
        raise ModelError("the embeddings of positions and segments have different widths")
    embedding_VD, output = weights["embeddings.word_embeddings.weight"], {}
    if masked:
        if roberta and settings["hidden_act"] != "gelu":  # its head has GELU always
            raise ModelError(f"config.json: hidden_act = {settings['hidden_act']!r:.40} cannot be imported, only gelu")
        output = weights.output(f"{head}.decoder.weight", embedding_VD, tied=settings["tie_word_embeddings"])
    config = EncoderOnlyConfig(
        **_same(settings), max_positions=len(table_TD), activation=_activation(settings["hidden_act"]),
        output_bias=masked, masked_head=masked, classes=_classes(settings) if classifier else 0, pooler=classifier,
        tie_output=not output,
    )  # fmt: skip
    ours = {
        "embedding.weight_VD": embedding_VD,
        "embedding.positions.table_TD": table_TD + segment_D,
        **weights.take([("embedding.norm", ("embeddings.LayerNorm",))]),
        **weights.take(_layers("encoder", "encoder.layer", config.layers, type_table("bert")["layer"])),
        **output,
    }
    if masked:
        dense = "dense" if roberta else "transform.dense"
        ours |= weights.take([("head.linear", (f"{head}.{dense}",)), ("head.norm", (f"{head}.{norm}",))])
        used = f"{head}.decoder.bias"  # the same as the other one, unless the output is not tied
        ours["output.bias_V"] = weights[used if used in weights else f"{head}.bias"]
    elif classifier:
        ours |= weights.take([("head.pooler", (pooler,))])
        ours |= {"head.weight_CD": weights[f"{classes}.weight"], "head.bias_C": weights[f"{classes}.bias"]}
    return config, ours


def _distilbert(settings: Settings, weights: _Weights) -> Converted:
    """DistilBERT: BERT with other names, and without segments."""
    weights.rename(type_table("distilbert")["renamed"])
    return _bert({**settings, "hidden_act": settings["activation"]}, weights)


def _vit(settings: Settings, weights: _Weights) -> Converted:
    """A Vision Transformer with its head for classes."""
    (height, width), (patch, patch_width) = _two(settings, "image_size", 224), _two(settings, "patch_size", 16)
    if patch != patch_width:
        raise ModelError(f"config.json: patch_size = {settings['patch_size']} cannot be imported, only squares can")
    config = EncoderOnlyConfig(
        **_same(settings), activation=_activation(settings["hidden_act"]), classes=_classes(settings),
        image_height=height, image_width=width, patch_size=patch,
    )  # fmt: skip
    return config, {
        "embedding.class_token_D": weights["embeddings.cls_token"].flatten(),
        "embedding.positions_TD": weights["embeddings.position_embeddings"][0],
        "embedding.project.weight": weights["embeddings.patch_embeddings.projection.weight"].flatten(1),
        "embedding.project.bias": weights["embeddings.patch_embeddings.projection.bias"],
        "head.weight_CD": weights["classifier.weight"],
        "head.bias_C": weights["classifier.bias"],
        **weights.take([("encoder_norm", ("layernorm",))]),
        **weights.take(_layers("encoder", "encoder.layer", config.layers, type_table("vit")["layer"]), zero_bias=True),
    }


def _two(settings: Settings, name: str, default: int) -> tuple[int, int]:
    """A height and a width, which may be one number."""
    value = settings.get(name, default)
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2 or not all(type(number) is int for number in pair):
        raise ModelError(f"config.json: {name} must be a whole number or two, not {json.dumps(value):.60}")
    return pair[0], pair[1]


def _t5(settings: Settings, weights: _Weights) -> Converted:
    d_model, d_k = settings["d_model"], settings["d_kv"]
    gate, _, activation = settings["feed_forward_proj"].rpartition("-")
    activation = "gelu_new" if gate and activation == "gelu" else activation
    stated = settings.get("dense_act_fn", activation), settings.get("is_gated_act", bool(gate))
    if gate not in ("", "gated") or stated != (activation, bool(gate)):
        raise ModelError(f"config.json: feed_forward_proj = {settings['feed_forward_proj']!r:.40} with {stated}")
    output = weights.output("lm_head.weight", weights["shared.weight"])
    config = EncoderDecoderConfig(
        **_same(settings), decoder_layers=settings["num_decoder_layers"] or settings["num_layers"], d_k=d_k, d_v=d_k,
        activation=_activation(activation, _GATED if gate else _ACTIVATIONS), tie_output=not output,
    )  # fmt: skip
    ours, table = {"embedding.weight_VD": weights["shared.weight"], **output}, type_table("t5")
    for side, layers, layer in (
        ("encoder", config.encoder_layers, table["layer"]),
        ("decoder", config.decoder_layers, table["layer"] | table["decoder_layer"]),
    ):
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        ours[f"{side}_relative.weight_BH"] = weights[bias]
        if gate:
            (inner,) = layer["feed_forward.inner"]
            layer = {**layer, "feed_forward.inner": (f"{inner}_0", f"{inner}_1")}
        ours |= weights.take([(f"{side}_norm", (f"{side}.final_layer_norm",))])
        ours |= weights.take(_layers(side, f"{side}.block", layers, layer))
    for name, x in ours.items():  # the division of scores by sqrt(d_k), which T5 does not have, is undone
        if name.endswith("self_attention.qkv.weight"):
            inner_width = config.num_heads * d_k
            ours[name] = torch.cat([x[:inner_width] * math.sqrt(d_k), x[inner_width:]])
        elif name.endswith("cross_attention.q.weight"):
            ours[name] = x * math.sqrt(d_k)
    if settings.get("scale_decoder_outputs", settings["tie_word_embeddings"]):
        ours["decoder_norm.weight"] = ours["decoder_norm.weight"] / math.sqrt(d_model)
    return config, ours


def _fairseq_settings(settings: Settings) -> dict[str, Any]:
    """What BART, Marian and Whisper have in common."""
    for name in ("ffn_dim", "attention_heads"):
        both = settings[f"encoder_{name}"], settings[f"decoder_{name}"]
        if both[0] != both[1]:
            different = f"encoder_{name} = {both[0]} and decoder_{name} = {both[1]}"
            raise ModelError(f"config.json: {different} cannot be imported, only if they are the same")
    return _same(settings) | {"activation": _activation(settings["activation_function"])}


def _fairseq_embeddings(settings: Settings, weights: _Weights) -> dict[str, Tensor]:
    """The token vectors, those of the source if they differ, and the output projection with its bias."""
    source_VD, embedding_VD = (
        weights[name if name in weights else "shared.weight"]
        for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    )
    ours = {
        "embedding.weight_VD": embedding_VD,
        **weights.output("lm_head.weight", embedding_VD, tied=settings["tie_word_embeddings"]),
    }
    if settings["model_type"] not in MULTILINGUAL or weights.find("final_logits_bias").any():
        ours["output.bias_V"] = weights["final_logits_bias"].flatten()
    return ours if torch.equal(source_VD, embedding_VD) else {**ours, "source_weight_VD": source_VD}


def _bart(settings: Settings, weights: _Weights) -> Converted:
    """BART, and mBART, whose norms are before the sub-layers."""
    tables = {side: weights[f"{side}.embed_positions.weight"][2:] for side in ("encoder", "decoder")}
    ours = _fairseq_embeddings(settings, weights)
    config = EncoderDecoderConfig(
        **_fairseq_settings(settings) | {"output_bias": "output.bias_V" in ours}, max_positions=len(tables["encoder"]),
        embedding="normalized", tie_output="output.weight_VD" not in ours,
    )  # fmt: skip
    ours |= weights.take(fairseq_modules(config), zero_bias=True)
    if settings["scale_embedding"]:
        scale = math.sqrt(settings["d_model"])
        ours |= {name: ours[name] * scale for name in ("embedding.weight_VD", "source_weight_VD") if name in ours}
        if config.tie_output:  # the last norm undoes the scale for the output projection
            ours |= {name: ours[name] / scale for name in last_norm(config)}
    return config, {
        **ours,
        "source_embedding.positions.table_TD": tables["encoder"],
        "embedding.positions.table_TD": tables["decoder"],
        **weights.take([("source_embedding.norm", ("encoder.layernorm_embedding",))]),
        **weights.take([("embedding.norm", ("decoder.layernorm_embedding",))]),
    }


def last_norm(config: EncoderDecoderConfig) -> list[str]:
    """The weights of the norm before the output projection."""
    norm = "decoder_norm" if config.norm == "pre" else f"decoder.{config.decoder_layers - 1}.residuals.2.norm"
    return [f"{norm}.weight", f"{norm}.bias"]


def _m2m(settings: Settings, weights: _Weights) -> Converted:
    """M2M-100 and NLLB."""
    if settings["pad_token_id"] != 1:  # positions are counted from there
        raise ModelError(f"config.json: pad_token_id = {settings['pad_token_id']} cannot be imported, only 1")
    ours = _fairseq_embeddings(settings, weights)
    config = EncoderDecoderConfig(
        **_fairseq_settings(settings), tie_output="output.weight_VD" not in ours,
        embedding="scaled" if settings["scale_embedding"] else "plain",
    )  # fmt: skip
    return config, ours | weights.take(fairseq_modules(config), zero_bias=True)


def _marian(settings: Settings, weights: _Weights) -> Converted:
    """Marian, and translation models of CTranslate2 and of Marian itself, whose settings it does not have.

    Marian's sinusoids, whose halves lie side by side, and other tables that a file has, are learned positions.
    """
    ours, theirs = _fairseq_embeddings(settings, weights), settings["model_type"] == "transformer"
    config = EncoderDecoderConfig(
        **_fairseq_settings(settings), tie_output="output.weight_VD" not in ours,
        embedding="scaled" if settings["scale_embedding"] else "plain",
        norm="pre" if settings.get("normalize_before") else "post",
        norm_epsilon=settings.get("layer_norm_epsilon", 1e-5), decoder_cell=settings.get("decoder_cell", "attention"),
    )  # fmt: skip
    if config.min_parameters(0) - config.max_positions * config.d_model > weights.count:  # before a table is computed
        raise ModelError("it has fewer weights than its settings require")
    names = [f"{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    tables = [weights[name] for name in names if name in weights]
    if len(tables) == 2 and not torch.equal(*tables):
        raise ModelError("its encoder and decoder have different positions, which cannot be imported")
    make = marian_sinusoids if theirs else opus_sinusoids
    ours["embedding.positions.table_TD"] = tables[0] if tables else make(config.max_positions, config.d_model)
    return config, ours | weights.take(fairseq_modules(config), zero_bias=True)


def _whisper(settings: Settings, weights: _Weights) -> Converted:
    embedding_VD = weights["decoder.embed_tokens.weight"]
    output = weights.output("proj_out.weight", embedding_VD, tied=settings["tie_word_embeddings"])
    config = EncoderDecoderConfig(
        **_fairseq_settings(settings), max_frames=2 * settings["max_source_positions"], tie_output=not output
    )
    if (name := "encoder.embed_positions.weight") in weights:
        table_TD, shape = weights[name], (settings["max_source_positions"], config.d_model)
        if table_TD.shape != shape or not torch.allclose(table_TD, marian_sinusoids(*shape), atol=_TOLERANCE):
            raise ModelError(f"{name} is not the table of sinusoids of Whisper, so the model cannot be imported")
    ours = {
        "embedding.weight_VD": embedding_VD,
        "embedding.positions.table_TD": weights["decoder.embed_positions.weight"],
        **output,
    }
    for name, theirs in (("first", "encoder.conv1"), ("second", "encoder.conv2")):
        ours[f"source_embedding.{name}.weight"] = weights[f"{theirs}.weight"].transpose(1, 2).flatten(1)
        ours[f"source_embedding.{name}.bias"] = weights[f"{theirs}.bias"]
    return config, ours | weights.take(fairseq_modules(config), zero_bias=True)


def _activation(name: str, known: Mapping[str, str] = _ACTIVATIONS) -> Any:
    """Our name of an activation of `config.json`."""
    if name not in known:
        raise ModelError(f"config.json: the activation {name!r:.40} is not supported; use {', '.join(known)}")
    return known[name]


def _classes(settings: Settings) -> int:
    """Number of classes of a classifier; transformers leaves the default, 2, out."""
    return len(settings.get("id2label") or {"0": "", "1": ""})


def opus_sinusoids(length: int, d_model: int) -> Tensor:
    """The sinusoids of Marian in transformers: those of the paper, with all sines before all cosines."""
    half = (d_model + 1) // 2
    column = torch.arange(d_model, dtype=torch.float64)
    pair = torch.where(column < half, column, column - half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10_000 ** (2 * pair / d_model)
    return torch.where(column < half, angle.sin(), angle.cos()).float()


CONVERTERS: dict[str, Callable[[Settings, _Weights], Converted]] = {
    "bart": _bart, "bert": _bert, "distilbert": _distilbert, "gemma2": _llama, "gemma3_text": _llama, "gpt2": _gpt2,
    "llama": _llama, "m2m_100": _m2m, "marian": _marian, "mbart": _bart, "mistral": _llama, "qwen2": _llama,
    "qwen3": _llama, "roberta": _bert, "t5": _t5, "transformer": _marian, "vit": _vit, "whisper": _whisper,
    "xlm-roberta": _bert,
}  # fmt: skip
"""The type in `config.json`, and its converter."""
LANGUAGE_MODELS = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text")
MASKED_MODELS = ("bert", "distilbert", "roberta", "xlm-roberta")
_PREFIXES = {
    "gpt2": "transformer.", "t5": "",
    **dict.fromkeys(("llama", "bart", "marian", "transformer", "whisper", "m2m_100", "mbart"), "model."),
    **dict.fromkeys(("mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"), "model."), "xlm-roberta": "roberta.",
}  # fmt: skip
"""What the names of weights may begin with; in other types, it is the type."""
