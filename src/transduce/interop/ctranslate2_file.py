"""CTranslate2's `model.bin` of Whisper or a Transformer, as settings and weights of a Hugging Face folder.

The file has a version, the name and revision of the specification, the variables (name, shape, type, bytes) and the
names of variables that are the same as another one. All integers are little-endian.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.models.weights_file import physical_memory

_VERSIONS = (5, 6)
_TYPES = {0: torch.float32, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.float16, 5: torch.bfloat16}
_MAX_VARIABLES, _MAX_RANK = 100_000, 8
_ACTIVATIONS = {0: "relu", 1: "gelu_new", 2: "swish", 3: "gelu"}
_GELU = 3
_WRITTEN_VERSION, _REVISION = 6, 7
"""Of the binary format, and of the specification of Transformers."""
LAYER_MODULES = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
    "ffn/layer_norm": ("final_layer_norm",),
}
"""The modules of a layer, and what transformers calls them: several are linear layers that are one here."""


def read_ctranslate2(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings of `config.json` and the weights with their names in transformers."""
    name, variables = read_variables(path)
    if name not in _MODELS:
        raise ModelError(
            f"{path}: CTranslate2 models of type {name!r:.40} cannot be imported; only {' and '.join(_MODELS)} can"
        )
    read_settings, read_weights = _MODELS[name]
    try:
        return read_settings(variables), read_weights(variables)
    except KeyError as error:
        raise ModelError(f"{path}: the model has no variable {error}") from None
    except (ValueError, TypeError, RuntimeError) as error:
        raise ModelError(f"{path}: the variables do not fit {name}: {error}") from None


def read_variables(path: Path) -> tuple[str, dict[str, Tensor]]:
    """The name of the specification, and all variables; 8-bit weights as float32."""
    require_file(path, physical_memory() // 4, "this machine has memory for")
    file = _Reader(path.read_bytes())
    try:
        version = file.number("I")
        if version not in _VERSIONS:
            raise ModelError(f"{path}: not a CTranslate2 model of version {' or '.join(map(str, _VERSIONS))}")
        name, _revision = file.string(), file.number("I")
        count = file.number("I")
        if count > _MAX_VARIABLES:
            raise ValueError(f"{count:,} variables")
        variables = dict(file.variable() for _ in range(count))
        for _ in range(file.number("I")):
            alias, original = file.string(), file.string()
            variables[alias] = variables[original]
    except (KeyError, ValueError, struct.error, RuntimeError) as error:
        raise ModelError(f"{path}: damaged: {error}") from None
    scales = {key: variables.pop(key) for key in [*variables] if key.endswith("_scale")}
    for key, scale in scales.items():  # one for each row, or one for the matrix
        weight = variables.get(key.removesuffix("_scale"))
        if weight is None or weight.dim() == 0 or scale.numel() not in (1, len(weight)):
            raise ModelError(f"{path}: {key[:60]} does not fit the variable that it belongs to")
        variables[key.removesuffix("_scale")] = weight.float() / scale.reshape(-1, *[1] * (weight.dim() - 1))
    return name, variables


def write_variables(path: Path, name: str, variables: Mapping[str, Tensor], aliases: Mapping[str, str]) -> None:
    """Write a model of this specification; `aliases` are names of variables that are the same as another one."""

    def string(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    types = {dtype: number for number, dtype in _TYPES.items()}
    content = [struct.pack("<I", _WRITTEN_VERSION), string(name), struct.pack("<II", _REVISION, len(variables))]
    for variable, x in sorted(variables.items()):
        array = np.ascontiguousarray(x.numpy())
        shape = struct.pack(f"<B{x.dim()}I", x.dim(), *x.shape)
        content += [string(variable), shape, struct.pack("<BI", types[x.dtype], array.nbytes), array.tobytes()]
    content.append(struct.pack("<I", len(aliases)))
    content += [string(alias) + string(original) for alias, original in sorted(aliases.items())]
    path.write_bytes(b"".join(content))


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._position = bytearray(content), 0  # writable, as torch requires

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from("<" + code, self._content, self._position)
        self._position += struct.calcsize(code)
        return int(value)

    def string(self) -> str:
        length = self.number("H")  # with a zero at the end
        return self._take(length)[: length - 1].decode()

    def variable(self) -> tuple[str, Tensor]:
        name, rank = self.string(), self.number("B")
        if rank > _MAX_RANK:
            raise ValueError(f"{name[:60]} has {rank} dimensions")
        shape = [self.number("I") for _ in range(rank)]
        kind, size = self.number("B"), self.number("I")
        if kind not in _TYPES:
            raise ValueError(f"{name[:60]} is of the unknown type {kind}")
        return name, torch.frombuffer(self._take(size), dtype=_TYPES[kind]).reshape(shape)

    def _take(self, length: int) -> bytearray:
        start, self._position = self._position, self._position + length
        if self._position > len(self._content) or length == 0:
            raise ValueError("it ends too early")
        return self._content[start : self._position]


def _whisper_settings(variables: dict[str, Tensor]) -> dict[str, Any]:
    if int(variables.get("decoder/activation", torch.tensor(_GELU))) != _GELU:
        raise ModelError("a Whisper model with another activation than GELU cannot be imported")
    return _sizes(variables) | {
        "model_type": "whisper",
        "max_source_positions": len(variables["encoder/position_encodings/encodings"]),
        "max_target_positions": len(variables["decoder/position_encodings/encodings"]),
        "num_mel_bins": variables["encoder/conv1/weight"].shape[1],
        "activation_function": "gelu",
        "dropout": 0.0,
    }


def _transformer_settings(variables: dict[str, Tensor]) -> dict[str, Any]:
    """Those of `huggingface.CONVERTERS["transformer"]`, a type of ours."""

    def flag(name: str) -> bool:
        return bool(variables.get(name, torch.tensor(0)))

    odd = [name for name in variables if re.search(r"relative|rotary|alibi|layernorm_embedding|embeddings_1", name)]
    if used := [name for name in odd if variables[name].dim() or flag(name)]:
        raise ModelError(f"a CTranslate2 model with {used[0]} cannot be imported")
    if flag("decoder/scale_outputs") or flag("encoder/multi_query_attention"):
        raise ModelError("a CTranslate2 model with scaled outputs or shared heads cannot be imported")
    embedding, output = variables["decoder/embeddings/weight"], variables["decoder/projection/weight"]
    source = variables["encoder/embeddings_0/weight"]
    tables = [variables[f"{side}/position_encodings/encodings"] for side in ("encoder", "decoder")]
    if not torch.equal(*tables):
        raise ModelError("a CTranslate2 model whose encoder and decoder have different positions cannot be imported")
    settings = _sizes(variables) | {
        "model_type": "transformer",
        "normalize_before": flag("encoder/pre_norm"),
        "activation_function": _ACTIVATIONS[int(variables["encoder/activation"])],
        "max_position_embeddings": len(variables["encoder/position_encodings/encodings"]),
        "scale_embedding": _is_scaled(variables, width=embedding.shape[1]),
        "tie_word_embeddings": torch.equal(output, embedding),
        "start_from_zero": flag("decoder/start_from_zero_embedding"),
        "dropout": 0.1,
    }
    return settings if torch.equal(source, embedding) else settings | {"source_vocab_size": len(source)}


def _is_scaled(variables: dict[str, Tensor], width: int) -> bool:
    """Whether embeddings are multiplied by the square root of the width: a flag, or the factor itself."""
    value = variables.get("decoder/scale_embeddings", torch.tensor(1, dtype=torch.int8))
    factor = float(value) if value.is_floating_point() else math.sqrt(width) if value else 1.0
    if not (factor == 1 or math.isclose(factor, math.sqrt(width), rel_tol=1e-6)):
        raise ModelError(f"a CTranslate2 model whose embeddings are multiplied by {factor:.4g} cannot be imported")
    return factor != 1


def _sizes(variables: dict[str, Tensor]) -> dict[str, Any]:
    vocabulary, width = variables["decoder/embeddings/weight"].shape
    layers = {
        side: len({match[1] for name in variables if (match := re.match(rf"{side}/layer_(\d+)/", name))})
        for side in ("encoder", "decoder")
    }
    inner = len(variables["encoder/layer_0/ffn/linear_0/bias"])
    return {
        "vocab_size": vocabulary,
        "d_model": width,
        "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"],
        "encoder_attention_heads": int(variables["encoder/num_heads"]),
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
    }


def _transformer_weights(variables: dict[str, Tensor]) -> dict[str, Tensor]:
    output = variables["decoder/projection/weight"]
    bias = variables.get("decoder/projection/bias", torch.zeros(len(output)))
    return _weights(variables) | {
        "model.shared.weight": variables["decoder/embeddings/weight"].float(),
        "model.encoder.embed_tokens.weight": variables["encoder/embeddings_0/weight"].float(),
        "lm_head.weight": output.float(),
        "final_logits_bias": bias.float()[None],
    }


def _weights(variables: dict[str, Tensor]) -> dict[str, Tensor]:
    weights = {
        "decoder.embed_tokens.weight": variables["decoder/embeddings/weight"],
        "decoder.embed_positions.weight": variables["decoder/position_encodings/encodings"],
    }
    for name, x in variables.items():
        side, *path, parameter = name.split("/")
        if path[:1] in (["conv1"], ["conv2"]):
            weights[f"{side}.{path[0]}.{parameter}"] = x
            continue
        parameter = {"gamma": "weight", "beta": "bias"}.get(parameter, parameter)
        if path == ["layer_norm"]:
            weights[f"{side}.layer_norm.{parameter}"] = x
        elif len(path) == 3 and path[0].startswith("layer_"):
            layer = f"{side}.layers.{path[0].removeprefix('layer_')}"
            modules = LAYER_MODULES["/".join(path[1:])]
            for module, matrix in zip(modules, x.chunk(len(modules)), strict=True):
                weights[f"{layer}.{module}.{parameter}"] = matrix
    return {f"model.{name}": x.float() for name, x in weights.items()}


_MODELS: dict[str, tuple[Callable[..., dict[str, Any]], Callable[..., dict[str, Tensor]]]] = {
    "TransformerSpec": (_transformer_settings, _transformer_weights),
    "WhisperSpec": (_whisper_settings, _weights),
}
"""The name of a specification, and the functions that read its settings and weights."""
