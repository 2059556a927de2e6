"""Marian's models of the type transformer, as settings and weights of a Hugging Face folder.

A model is an `.npz` file, or a `.bin` file, as those of Firefox Translations. A `.bin` file is a version and the number
of arrays; the length of name, type, rank and size in bytes of each; all names, all shapes, a gap, and the content of
each, at a multiple of 256 bytes. A matrix of 8-bit integers is stored transposed, but for the embeddings, and a number
at its end says what 1.0 is.
"""

import json
import math
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.models.weights_file import physical_memory

MODEL, BINARY_MODEL, VOCABULARY, SETTINGS = "model.npz", "model.intgemm8.bin", "vocab.spm", "special:model.yml"
SEPARATE_VOCABULARIES = ("srcvocab.spm", "trgvocab.spm")
EPSILON = 1e-6
"""Number that Marian's norms add to the variance."""
_ATTENTION = {"self_attn": "self", "encoder_attn": "context"}
_PROJECTIONS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
"""The names of modules in transformers, and what Marian calls them."""
_LENGTH = 1024
"""Number of positions: sinusoids have no limit of their own."""
_REQUIRED = {
    "type": "transformer", "transformer-postprocess-emb": "d",
    "transformer-no-projection": "false", "transformer-ffn-depth": "2", "transformer-tied-layers": "[]",
}  # fmt: skip
"""Settings with the only value that can be imported, if they are given."""
_MAX_ARRAYS, _MAX_RANK = 100_000, 8
_FLOATS, _INTEGERS, _INT8_MATRIX = 0x404, 0x101, 0x4101
"""Types of arrays."""
_ALIGNMENT = 256
_MULTIPLIED = re.compile(r"_W\w?$|Wemb$")
"""The names of matrices that are multiplied, which an 8-bit model has as integers."""
_TILE = (64, 8)
"""The rows and columns of a matrix of 8-bit integers are multiples of these."""


def find_marian(folder: Path) -> Path | None:
    """The model of a folder, if it is one of Marian."""
    if not folder.is_dir() or (folder / "config.json").exists():
        return None
    found = [*sorted(folder.glob("*.npz")), *sorted(folder.glob("model*.bin"))]
    if len(found) > 1:
        raise ModelError(f"{folder}: it has several models: {', '.join(path.name for path in found[:4])}; keep one")
    return found[0] if found else None


def read_marian(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings of `config.json` and the weights with their names in transformers."""
    arrays = _read_npz(path) if path.suffix == ".npz" else read_binary(path)
    try:
        options = _parse_settings(bytes(arrays.pop(SETTINGS)).rstrip(b"\0").decode())
        settings = _settings(options, arrays)
        return settings, _weights(settings, arrays)
    except KeyError as error:
        raise ModelError(f"{path}: the model has no {error}") from None
    except (ValueError, IndexError, RuntimeError) as error:
        raise ModelError(f"{path}: not a Transformer of Marian: {error}") from None
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def _read_npz(path: Path) -> dict[str, Any]:
    require_file(path, physical_memory() // 2, "this machine has memory for")
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > physical_memory() // 2:
                raise ModelError(f"{path}: its arrays do not fit in the memory of this machine")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except ModelError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise whatever a damaged file leads to
        raise ModelError(f"{path}: not an .npz file, or damaged: {error!s:.200}") from None


def _parse_settings(text: str) -> dict[str, str]:
    """The settings of a YAML file of Marian as texts; values on further lines are joined to a list."""
    settings: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.lstrip().startswith("- ") and name:
            settings[name] = f"{settings[name]} {line.strip()[2:]}".strip()
        elif match := re.match(r"([\w-]+):\s*(.*)$", line):
            name, value = match[1], match[2].strip()
            settings[name] = value.strip("\"'")
    return settings


def _settings(options: dict[str, str], arrays: dict[str, Any]) -> dict[str, Any]:
    for name, value in _REQUIRED.items():
        if options.get(name, value) not in (value, ""):
            raise ModelError(f"a Marian model with {name}: {options[name]:.40} cannot be imported, only {value}")
    pre = "n" in options["transformer-preprocess"]
    expected = ("n", "da", "n") if pre else ("", "dan", "")
    names = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
    if tuple(options.get(name, "") for name in names) != expected:
        raise ModelError(f"a Marian model whose norms are placed other than {expected} cannot be imported")
    cell = (options.get("transformer-decoder-autoreg", "self-attention"), options.get("dec-cell", "ssru"))
    if cell[0] != "self-attention" and cell != ("rnn", "ssru"):
        raise ModelError(f"a Marian model with a decoder of {' '.join(cell):.40} cannot be imported")
    if (activation := options["transformer-ffn-activation"]) not in ("relu", "swish"):
        raise ModelError(f"a Marian model with the activation {activation:.40} cannot be imported, only relu or swish")
    if "Wpos" in arrays:
        raise ModelError("a Marian model with trained positions cannot be imported")
    source, embedding = _embedding(arrays, "encoder"), _embedding(arrays, "decoder")
    source_size = {} if np.array_equal(source, embedding) else {"source_vocab_size": source.shape[0]}
    return source_size | {
        "model_type": "transformer",
        "vocab_size": embedding.shape[0],
        "d_model": embedding.shape[1],
        "encoder_layers": int(options["enc-depth"]),
        "decoder_layers": int(options["dec-depth"]),
        "encoder_attention_heads": int(options["transformer-heads"]),
        "encoder_ffn_dim": arrays["encoder_l1_ffn_W1"].shape[1],
        "decoder_ffn_dim": arrays["decoder_l1_ffn_W1"].shape[1],
        "normalize_before": pre,
        "activation_function": activation,
        "max_position_embeddings": _LENGTH,
        "scale_embedding": True,
        "tie_word_embeddings": "decoder_ff_logit_out_W" not in arrays,
        "start_from_zero": True,
        "decoder_cell": "attention" if cell[0] == "self-attention" else "ssru",
        "layer_norm_epsilon": EPSILON,
        "dropout": 0.1,
    }


def _embedding(arrays: dict[str, Any], side: str) -> Any:
    return arrays[f"{side}_Wemb"] if f"{side}_Wemb" in arrays else arrays["Wemb"]


def _weights(settings: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Tensor]:
    embedding = _tensor(_embedding(arrays, "decoder"))
    output = arrays.get("decoder_ff_logit_out_W")
    bias = arrays.get("decoder_ff_logit_out_b", np.zeros((1, len(embedding)), np.float32))
    weights = {
        "model.shared.weight": embedding,
        "model.encoder.embed_tokens.weight": _tensor(_embedding(arrays, "encoder")),
        "lm_head.weight": embedding if output is None else _tensor(output).T,
        "final_logits_bias": _tensor(bias).reshape(1, -1),
    }

    def put(name: str, theirs: str) -> None:
        """Matrices are stored transposed, vectors as rows; the name of a norm may end in _pre."""
        x = _tensor(arrays[f"{theirs}_pre" if f"{theirs}_pre" in arrays else theirs])
        weights[name] = x.T if is_matrix(name) else x.flatten()

    for side in ("encoder", "decoder"):
        if settings["normalize_before"]:
            for kind, suffix in (("weight", "scale"), ("bias", "bias")):
                put(f"model.{side}.layer_norm.{kind}", f"{side}_top_ln_{suffix}")
        for n in range(settings[f"{side}_layers"]):
            for name, theirs in layer_names(side, settings["decoder_cell"]).items():
                put(f"model.{side}.layers.{n}.{name}", f"{side}_l{n + 1}_{theirs}")
    return weights


def layer_names(side: str, decoder_cell: str) -> dict[str, str]:
    """The weights of a layer: their names in transformers, and what Marian calls them."""
    names: dict[str, str] = {}

    def add_norm(name: str, theirs: str) -> None:
        names.update({f"{name}.weight": f"{theirs}_ln_scale", f"{name}.bias": f"{theirs}_ln_bias"})

    recurrent = side == "decoder" and decoder_cell == "ssru"
    for attention, part in list(_ATTENTION.items())[recurrent : 2 if side == "decoder" else 1]:
        for projection, letter in _PROJECTIONS.items():
            names[f"{attention}.{projection}.weight"] = f"{part}_W{letter}"
            names[f"{attention}.{projection}.bias"] = f"{part}_b{letter}"
        add_norm(f"{attention}_layer_norm", f"{part}_Wo")
    if recurrent:
        names |= {"self_attn.input.weight": "rnn_W", "self_attn.forget.weight": "rnn_Wf"}
        names["self_attn.forget.bias"] = "rnn_bf"
        add_norm("self_attn_layer_norm", "rnn_ffn")
    for number in (1, 2):
        names |= {f"fc{number}.weight": f"ffn_W{number}", f"fc{number}.bias": f"ffn_b{number}"}
    add_norm("final_layer_norm", "ffn_ffn")
    return names


def is_matrix(name: str) -> bool:
    """Whether a weight of a layer, by its name in transformers, is a matrix, not a vector."""
    return name.endswith(".weight") and "layer_norm" not in name


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32))


def read_vocabulary(path: Path) -> list[str]:
    """The tokens of a `.yml` vocabulary of Marian, in the order of their ids."""
    require_file(path, 1 << 26, "such a file can have")
    tokens = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        token, colon, value = line.rpartition(":")
        if not colon or not value.strip().isdigit():
            raise ModelError(f"{path}, line {number}: not a token and its number")
        tokens[int(value)] = _unquoted(token)
    if tokens.keys() != set(range(len(tokens))):
        raise ModelError(f"{path}: the ids of its tokens are not 0, 1, 2 and so on")
    return [tokens[number] for number in range(len(tokens))]


def _unquoted(token: str) -> str:
    if token[:1] == token[-1:] == '"':
        try:
            return str(json.loads(re.sub(r"\\x(..)", r"\\u00\1", token)))
        except ValueError:
            return token[1:-1]
    return token[1:-1].replace("''", "'") if len(token) > 1 and token[0] == token[-1] == "'" else token


def read_binary(path: Path) -> dict[str, Any]:
    """The arrays of a file, which is untrusted; matrices of 8-bit integers as floats."""
    require_file(path, physical_memory() // 8, "this machine has memory for")
    content = path.read_bytes()
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        if len(content) - at < size:
            raise ValueError("it ends too early")
        at += size
        return content[at - size : at]

    def numbers(code: str, count: int) -> tuple[int, ...]:
        layout = f"<{count}{code}"
        return struct.unpack(layout, take(struct.calcsize(layout)))

    try:
        version, count = numbers("Q", 2)
        if version != 1 or count > _MAX_ARRAYS:
            raise ValueError(f"version {version} with {count:,} arrays")
        headers = [numbers("Q", 4) for _ in range(count)]
        if deep := [rank for _, _, rank, _ in headers if rank > _MAX_RANK]:
            raise ValueError(f"an array has {deep[0]:,} dimensions")
        names = [take(length)[:-1].decode() for length, *_ in headers]
        shapes = [numbers("i", rank) for _, _, rank, _ in headers]
        take(*numbers("Q", 1))  # a gap
        arrays = {
            name: _stored_array(name, kind, shape, take(size))
            for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True)
        }
    except (ValueError, struct.error, KeyError, UnicodeDecodeError, MemoryError) as error:
        raise ModelError(f"{path}: not a binary model of Marian, or damaged: {error}") from None
    return arrays


def _stored_array(name: str, kind: int, shape: tuple[int, ...], content: bytes) -> Any:
    if kind == _INTEGERS:
        return np.frombuffer(content, np.int8)
    size = math.prod(shape)
    if min(shape, default=0) < 1 or size > len(content):
        raise ValueError(f"{name:.60} has the shape {shape}")
    if kind == _FLOATS:
        return np.frombuffer(content, np.float32, size).reshape(shape)
    if kind != _INT8_MATRIX or len(shape) != 2:
        raise ValueError(f"{name:.60} is of the type {kind:#x}")
    integers = np.frombuffer(content, np.int8, size)
    scale = np.frombuffer(content, np.float32, 1, size)[0]
    if not 0 < scale < np.inf:
        raise ValueError(f"{name:.60} has the scale {scale}")
    rows = integers.reshape(shape) if name.endswith("Wemb") else integers.reshape(shape[::-1]).T
    return rows.astype(np.float32) / scale


def write_binary(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an 8-bit model. Arrays of integers, which are texts, stay as they are, and so do vectors."""
    stored = [(name, array.shape, *_content(name, array)) for name, array in sorted(arrays.items())]
    header = [struct.pack("<2Q", 1, len(stored))]
    header += [struct.pack("<4Q", len(name.encode()) + 1, kind, len(shape), len(x)) for name, shape, kind, x in stored]
    header += [name.encode() + b"\0" for name, *_ in stored]
    header += [struct.pack(f"<{len(shape)}i", *shape) for _, shape, *_ in stored]
    gap = -(sum(map(len, header)) + 8) % _ALIGNMENT
    path.write_bytes(b"".join([*header, struct.pack("<Q", gap), bytes(gap), *(x for *_, x in stored)]))


def _content(name: str, array: npt.NDArray[Any]) -> tuple[int, bytes]:
    """The type of an array in a file, and its content."""
    if array.dtype == np.int8:
        return _INTEGERS, array.tobytes()  # the last one by name, so that it need not be aligned
    kind, content = _FLOATS, array.astype(np.float32).tobytes()
    if _MULTIPLIED.search(name):
        matrix = array if name.endswith("Wemb") else array.T  # (outputs, inputs)
        if matrix.shape[1] % _TILE[0] or matrix.shape[0] % _TILE[1]:
            raise ModelError(
                f"8-bit products of Marian need inputs in multiples of {_TILE[0]} and outputs in multiples of "
                f"{_TILE[1]}; {name} has {matrix.shape[1]} and {matrix.shape[0]} (model.d_model, model.d_ff and "
                "tokenizer.vocab_size decide)"
            )
        scale = np.float32(127 / max(float(np.abs(matrix).max()), 1e-30))
        kind, content = _INT8_MATRIX, np.rint(matrix * scale).astype(np.int8).tobytes() + scale.tobytes()
    return kind, content + bytes(-len(content) % _ALIGNMENT)
