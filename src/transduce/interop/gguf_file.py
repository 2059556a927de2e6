"""GGUF files of llama.cpp: settings, weights (dequantized) and metadata, in the form of a Hugging Face folder."""

import math
import mmap
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.models.weights_file import physical_memory

_SETTINGS = {
    "gpt2": {
        "n_layer": "block_count", "n_embd": "embedding_length", "n_inner": "feed_forward_length",
        "n_head": "attention.head_count", "n_positions": "context_length",
        "layer_norm_epsilon": "attention.layer_norm_epsilon",
    },
    "llama": {
        "num_hidden_layers": "block_count", "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
        "max_position_embeddings": "context_length", "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    },
}  # fmt: skip
"""The settings of transformers, and what GGUF calls them."""
_MODULES = {
    "gpt2": {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f"},
    "llama": {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"},
}
_LAYERS = {"gpt2": "h", "llama": "model.layers"}
_LAYER_MODULES = {
    "gpt2": {
        "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
        "attn_norm": "ln_1", "ffn_norm": "ln_2",
    },
    "llama": {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    },
}  # fmt: skip
"""The modules of GGUF, and what transformers calls them."""
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
"""Types of values in the metadata."""
_MAX_FIELDS, _MAX_TENSORS, _MAX_ELEMENTS = 1 << 12, 1 << 16, 1 << 21
"""Limits for the metadata: several times those of any model; the package gguf keeps an object for each element."""


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Any]]:
    """The settings of `config.json`, the weights with their names in transformers, and the metadata."""
    try:
        import gguf
    except ImportError:
        raise ModelError("GGUF files need the package gguf: pip install 'transduce[import]'") from None
    require_file(path, physical_memory(), "this machine has memory for")
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _check_metadata(content)
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        numbers = sum(math.prod(map(int, tensor.shape)) for tensor in reader.tensors)
        if 8 * numbers > physical_memory():
            raise ModelError(f"{path}: its {numbers:,} weights do not fit in the memory of this machine")
        settings = _settings(fields, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
        weights = {}
        for tensor in reader.tensors:
            if name := _name(tensor.name, settings["model_type"]):
                matrix = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype("float32"))
                weights[name] = _restored(name, matrix, settings)
    except ModelError:
        raise
    except NotImplementedError as error:
        raise ModelError(f"{path}: a quantization that the package gguf cannot read: {error}") from None
    except Exception as error:  # the package raises whatever a damaged file leads to
        raise ModelError(f"{path}: not a GGUF file of a llama or gpt2 model, or damaged: {error!r:.200}") from None
    return settings, weights, fields


def _check_metadata(content: mmap.mmap) -> None:
    """Raise a ValueError for counts and lengths that do not fit the file, which the package gguf would believe."""
    (version,) = struct.unpack_from("<I", content, 4)
    order, at = "<" if version & 0xFFFF else ">", 24

    def number(code: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(order + code, content, at)
        at += struct.calcsize(code)
        return int(value)

    def skip(size: int) -> None:
        nonlocal at
        at += size
        if at > len(content):
            raise ValueError("it ends too early")

    tensors, fields = struct.unpack_from(order + "QQ", content, 8)
    if tensors > _MAX_TENSORS or fields > _MAX_FIELDS:
        raise ValueError(f"{tensors:,} tensors and {fields:,} fields")
    elements = 0
    for _ in range(fields):
        skip(number("Q"))
        kind, count = number("I"), 1
        if kind == _ARRAY:
            kind, count = number("I"), number("Q")
        elements += count
        if elements > _MAX_ELEMENTS:
            raise ValueError(f"{elements:,} values in the metadata")
        if kind == _STRING:
            for _ in range(count):
                skip(number("Q"))
        elif kind in _SCALAR_BYTES:
            skip(count * _SCALAR_BYTES[kind])
        else:
            raise ValueError(f"a value of the type {kind}")


def _settings(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    kind = fields.get("general.architecture")
    if kind not in _SETTINGS:
        raise ModelError(f"GGUF models of the architecture {kind!r:.40} cannot be imported; use llama or gpt2")
    if fields.get(f"{kind}.rope.scaling.type", "none") != "none":
        raise ModelError("GGUF models with scaled rotary positions cannot be imported")
    settings = {"model_type": kind, **{ours: fields[f"{kind}.{theirs}"] for ours, theirs in _SETTINGS[kind].items()}}
    if kind == "llama":
        settings |= {
            "num_key_value_heads": fields.get("llama.attention.head_count_kv"),
            "head_dim": fields.get("llama.attention.key_length"),
            "rope_theta": fields.get("llama.rope.freq_base", 10_000.0),
            "tie_word_embeddings": tied,
        }
    return settings


def _name(name: str, kind: str) -> str | None:
    """The name of a weight in transformers; None if it is not needed."""
    module, _, parameter = name.rpartition(".")
    if module in _MODULES[kind]:
        return f"{_MODULES[kind][module]}.{parameter}"
    block = module.split(".")
    if len(block) == 3 and block[0] == "blk" and block[2] in _LAYER_MODULES[kind]:
        return f"{_LAYERS[kind]}.{block[1]}.{_LAYER_MODULES[kind][block[2]]}.{parameter}"
    if name == "rope_freqs.weight":
        raise ModelError("GGUF models with scaled rotary positions cannot be imported")
    if name == "output.weight":  # of GPT-2: a copy of the embeddings
        return None
    raise ModelError(f"the weight {name[:60]} of a {kind} model is not known")


def _restored(name: str, matrix: Tensor, settings: dict[str, Any]) -> Tensor:
    """A weight as transformers stores it."""
    if settings["model_type"] == "gpt2":
        return matrix.T.contiguous() if matrix.dim() == 2 and name.startswith("h.") else matrix
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        # llama.cpp rotates neighbours (0, 1), (2, 3); transformers rotates halves (0, K / 2), (1, K / 2 + 1).
        heads = settings["num_attention_heads"]
        if name.endswith("k_proj.weight"):
            heads = settings["num_key_value_heads"] or heads
        return matrix.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return matrix
