"""Reading GGUF files of llama.cpp, whose weights are dequantized."""

import math
import mmap
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.interop.exchange import ByteReader, Original
from transduce.interop.family import type_table
from transduce.interop.imported_tokenizers import ImportedTokenizer, LibraryTokenizer, TokenOrder
from transduce.interop.vocabulary import byte_level_bpe, find_markers, scored_bpe
from transduce.models.weights_file import physical_memory

_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
"""Types of values in the metadata."""
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
"""Types of ordinary tokens, special ones, and others that are recognized as a whole."""
_CHECKED = ("tokenizer.ggml.", "split.", "adapter.", "general.type")
"""Beginnings of keys, beside those of the architecture, that change what is computed; others describe the file."""
_KNOWN = re.compile(
    r"tokenizer\.ggml\.(model|pre|tokens|token_type|scores|merges|add_bos_token|\w+_token_id)|split\.no"
)
_TYPES = {"llama": "llama", "gpt2": "gpt2", "gemma2": "gemma2", "gemma3": "gemma3_text"}
"""The architectures that are read, and their types in transformers."""
_GEMMA_27B = {"gemma2": 46, "gemma3_text": 62}
"""Number of layers of the models of Gemma whose scores are scaled by another number than the width of a head."""
_SPACE_PREFIX = "tokenizer.ggml.add_space_prefix"
_NEUTRAL = (0, False, "", "none", "default", "model")
"""Values by which an unknown key changes nothing."""
_MAX_FIELDS, _MAX_TENSORS, _MAX_ELEMENTS = 1 << 12, 1 << 16, 1 << 21
"""Limits for the metadata: several times those of any model; the package gguf keeps an object for each element."""


def read_gguf(path: Path) -> Original:
    settings, weights, fields = _read_file(path)
    tokenizer = gguf_tokenizer(fields, settings)
    numbers = [fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    ends = [int(token) for token in numbers if token is not None and 0 <= token < tokenizer.order.size]
    return Original("GGUF", settings, weights, tokenizer, ends=ends)


def gguf_tokenizer(fields: Mapping[str, Any], settings: Mapping[str, Any]) -> ImportedTokenizer:
    """The vocabulary of a GGUF file, given its metadata: byte-level BPE (gpt2), or SentencePiece's BPE (llama)."""
    if (model := fields.get("tokenizer.ggml.model")) not in ("gpt2", "llama"):
        raise ModelError(f"a GGUF vocabulary of type {model!r:.40} cannot be imported; use one of type gpt2 or llama")
    tokens, types = fields["tokenizer.ggml.tokens"], fields.get("tokenizer.ggml.token_type", [])
    added = {
        token: kind == _CONTROL for token, kind in zip(tokens, types, strict=False) if kind in (_CONTROL, _USER_DEFINED)
    }
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelError("the GGUF vocabulary has a token twice")
    if model == "gpt2":
        text = byte_level_bpe(
            vocabulary, fields["tokenizer.ggml.merges"], added, fields.get("tokenizer.ggml.pre", "default")
        )
    else:
        scored = zip(tokens, types, fields["tokenizer.ggml.scores"], strict=True)
        scores = {token: score for token, kind, score in scored if kind == _NORMAL}
        unknown = tokens[fields.get("tokenizer.ggml.unknown_token_id", 0)]
        prefix = bool(fields.get(_SPACE_PREFIX, True))
        text = scored_bpe(vocabulary, scores, added, unknown, prefix=prefix)
    roles = {"pad": "padding", "unk": "unknown", "bos": "bos", "eos": "eos"}
    ids = {f"{ours}_token_id": fields.get(f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in roles.items()}
    begins = bool(fields.get("tokenizer.ggml.add_bos_token", model == "llama"))
    found = find_markers({**settings, **ids}, {}, vocabulary.get, len(tokens), begins=begins)
    return LibraryTokenizer(text, TokenOrder(found, len(tokens)))


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Any]]:
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
            name = _name(tensor.name, settings["model_type"])
            matrix = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype("float32"))
            weights[name] = _restored(name, matrix, settings)
    except ModelError:
        raise
    except NotImplementedError:
        raise ModelError(f"{path}: its weights have a quantization that the package gguf cannot read") from None
    except Exception:  # the package raises whatever a damaged file leads to
        raise ModelError(f"{path}: not a GGUF file of a {' or '.join(_TYPES)} model, or damaged") from None
    return settings, weights, fields


def _check_metadata(content: mmap.mmap) -> None:
    """Raise a ValueError for counts and lengths that do not fit the file, which the package gguf would believe."""
    version = ByteReader(content, 4).number("I")
    file = ByteReader(content, 8, "<" if version & 0xFFFF else ">")
    tensors, fields = file.numbers("Q", 2)
    if tensors > _MAX_TENSORS or fields > _MAX_FIELDS:
        raise ValueError(f"{tensors:,} tensors and {fields:,} fields")
    elements = 0
    for _ in range(fields):
        file.skip(file.number("Q"))
        kind, count = file.number("I"), 1
        if kind == _ARRAY:
            kind, count = file.number("I"), file.number("Q")
        elements += count
        if elements > _MAX_ELEMENTS:
            raise ValueError(f"{elements:,} values in the metadata")
        if kind == _STRING:
            for _ in range(count):
                file.skip(file.number("Q"))
        elif kind in _SCALAR_BYTES:
            file.skip(count * _SCALAR_BYTES[kind])
        else:
            raise ValueError(f"a value of the type {kind}")


def _settings(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    kind = fields.get("general.architecture")
    if kind not in _TYPES:
        raise ModelError(f"GGUF models of the architecture {kind!r:.40} cannot be imported; use {', '.join(_TYPES)}")
    table = type_table(_TYPES[kind])
    known = {f"{kind}.{name}" for name in (*table["gguf"].values(), *table["gguf_ignored"])}
    width = fields.get(f"{kind}.attention.key_length")
    width = width or fields[f"{kind}.embedding_length"] // fields[f"{kind}.attention.head_count"]
    widths = {f"{kind}.{name}" for name in table["gguf_ignored"][1:]}  # other widths of heads
    for name, value in fields.items():
        if name in known:
            accepted = isinstance(value, int | float) and (name not in widths or value == width)
        elif name == "split.count":
            accepted = value <= 1
        else:
            spaces = name == _SPACE_PREFIX and fields.get("tokenizer.ggml.model") == "llama"
            checked = not spaces and name.startswith((f"{kind}.", *_CHECKED)) and not _KNOWN.fullmatch(name)
            accepted = not checked or value in _NEUTRAL
        if not accepted:
            raise ModelError(f"GGUF models with {name:.60} = {value!s:.40} cannot be imported")
    settings: dict[str, Any] = {ours: fields.get(f"{kind}.{theirs}") for ours, theirs in table["gguf"].items()}
    settings |= {"model_type": _TYPES[kind], "tie_word_embeddings": tied}
    if layers := _GEMMA_27B.get(_TYPES[kind]):
        large = settings["num_hidden_layers"] == layers
        settings["query_pre_attn_scalar"] = (
            settings["hidden_size"] // settings["num_attention_heads"] if large else width
        )
    return settings


def _name(name: str, kind: str) -> str:
    """The name of a weight in transformers."""
    table = type_table(kind)
    module, _, parameter = name.rpartition(".")
    if module in table["gguf_modules"]:
        return f"{table['gguf_modules'][module]}.{parameter}"
    block = module.split(".")
    if len(block) == 3 and block[0] == "blk" and block[2] in table["gguf_layer"]:
        return f"{table['gguf_modules']['blk']}.{block[1]}.{table['gguf_layer'][block[2]]}.{parameter}"
    raise ModelError(f"GGUF models of the architecture {kind} with the weight {name[:60]} cannot be imported")


def _restored(name: str, matrix: Tensor, settings: dict[str, Any]) -> Tensor:
    """A weight as transformers stores it."""
    if settings["model_type"] in _GEMMA_27B:  # llama.cpp stores what its norms multiply by
        return matrix - 1 if name.endswith("norm.weight") else matrix
    if settings["model_type"] == "gpt2":
        return matrix.T.contiguous() if matrix.dim() == 2 and name.startswith("h.") else matrix
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        # llama.cpp rotates neighbours (0, 1), (2, 3); transformers rotates halves (0, K / 2), (1, K / 2 + 1).
        heads = settings["num_attention_heads"]
        if name.endswith("k_proj.weight"):
            heads = settings["num_key_value_heads"] or heads
        return matrix.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return matrix
