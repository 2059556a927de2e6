"""Reading CTranslate2's `model.bin` of Whisper: settings and weights in the form of a Hugging Face folder.

The file has a version, the name and revision of the specification, the variables (name, shape, type, bytes) and the
names of variables that are the same as another one. All integers are little-endian.
"""

import re
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.models.header import physical_memory

_VERSIONS = (5, 6)
_TYPES = {0: torch.float32, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.float16, 5: torch.bfloat16}
_MAX_VARIABLES, _MAX_RANK = 100_000, 8
_ATTENTION = {"self_attention": "self_attn", "attention": "encoder_attn"}
_GELU = 3


def read_whisper(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings of `config.json` and the weights with their names in transformers."""
    name, variables = read_variables(path)
    if name != "WhisperSpec":
        raise ModelError(f"{path}: CTranslate2 models of type {name!r:.40} cannot be imported; only Whisper can")
    try:
        return _settings(variables), _weights(variables)
    except KeyError as error:
        raise ModelError(f"{path}: the model has no variable {error}") from None
    except (ValueError, TypeError, RuntimeError) as error:
        raise ModelError(f"{path}: the variables do not fit Whisper: {error}") from None


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
        weight = variables[key.removesuffix("_scale")].float()
        variables[key.removesuffix("_scale")] = weight / scale.reshape(-1, *[1] * (weight.dim() - 1))
    return name, variables


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


def _settings(variables: dict[str, Tensor]) -> dict[str, Any]:
    if int(variables.get("decoder/activation", torch.tensor(_GELU))) != _GELU:
        raise ModelError("a Whisper model with another activation than GELU cannot be imported")
    vocabulary, width = variables["decoder/embeddings/weight"].shape
    layers = {
        side: len({match[1] for name in variables if (match := re.match(rf"{side}/layer_(\d+)/", name))})
        for side in ("encoder", "decoder")
    }
    inner = len(variables["encoder/layer_0/ffn/linear_0/bias"])
    return {
        "model_type": "whisper",
        "vocab_size": vocabulary,
        "d_model": width,
        "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"],
        "encoder_attention_heads": int(variables["encoder/num_heads"]),
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "max_source_positions": len(variables["encoder/position_encodings/encodings"]),
        "max_target_positions": len(variables["decoder/position_encodings/encodings"]),
        "num_mel_bins": variables["encoder/conv1/weight"].shape[1],
        "activation_function": "gelu",
        "dropout": 0.0,
    }


def _weights(variables: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys and values are one matrix here, and three in transformers."""
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
            block, part, module = path
            layer = f"{side}.layers.{block.removeprefix('layer_')}"
            for theirs, matrix in _module(part, module, x):
                weights[f"{layer}.{theirs}.{parameter}"] = matrix
    return {f"model.{name}": x.float() for name, x in weights.items()}


def _module(part: str, module: str, x: Tensor) -> list[tuple[str, Tensor]]:
    """The modules in transformers that a linear layer or a norm consists of, and their weights."""
    if part == "ffn":
        names = {"layer_norm": "final_layer_norm", "linear_0": "fc1", "linear_1": "fc2"}
        return [(names[module], x)]
    name = _ATTENTION[part]
    if module == "layer_norm":
        return [(f"{name}_layer_norm", x)]
    if part == "self_attention":
        projections = {"linear_0": "qkv"}.get(module, "")
    else:
        projections = {"linear_0": "q", "linear_1": "kv"}.get(module, "")
    if not projections:
        return [(f"{name}.out_proj", x)]
    return [(f"{name}.{one}_proj", own) for one, own in zip(projections, x.chunk(len(projections)), strict=True)]
