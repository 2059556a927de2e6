"""Reading Marian's models of the type transformer: settings and weights as in a Hugging Face folder.

A model is an `.npz` file, or a `.bin` file, as those of Firefox Translations.
"""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.interop.marian_binary import read_binary
from transduce.models.weights_file import physical_memory

MODEL, BINARY_MODEL, VOCABULARY, SETTINGS = "model.npz", "model.intgemm8.bin", "vocab.spm", "special:model.yml"
SEPARATE_VOCABULARIES = ("srcvocab.spm", "trgvocab.spm")
EPSILON = 1e-6
"""Number that Marian's norms add to the variance."""
ATTENTION = {"self_attn": "self", "encoder_attn": "context"}
PROJECTIONS = {f"{name}_proj": name for name in "qkv"} | {"out_proj": "o"}
FEED_FORWARD = {"fc1": "1", "fc2": "2"}
"""The names of modules in transformers, and what Marian calls them."""
_LENGTH = 1024
"""Number of positions: sinusoids have no limit of their own."""
_REQUIRED = {
    "type": "transformer", "transformer-postprocess-emb": "d",
    "transformer-no-projection": "false", "transformer-ffn-depth": "2", "transformer-tied-layers": "[]",
}  # fmt: skip
"""Settings with the only value that can be imported, if they are given."""


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
        options = parse_settings(bytes(arrays.pop(SETTINGS)).rstrip(b"\0").decode())
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


def parse_settings(text: str) -> dict[str, str]:
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
    own_source = {} if np.array_equal(source, embedding) else {"source_vocab_size": source.shape[0]}
    return own_source | {
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

    def put_norm(name: str, theirs: str) -> None:
        for kind, suffix in (("weight", "scale"), ("bias", "bias")):
            pre = f"{theirs}_ln_{suffix}_pre"
            weights[f"{name}.{kind}"] = _tensor(arrays[pre if pre in arrays else f"{theirs}_ln_{suffix}"]).flatten()

    for side in ("encoder", "decoder"):
        if settings["normalize_before"]:
            put_norm(f"model.{side}.layer_norm", f"{side}_top")
        for n in range(settings[f"{side}_layers"]):
            name, theirs = f"model.{side}.layers.{n}", f"{side}_l{n + 1}"
            recurrent = side == "decoder" and settings["decoder_cell"] == "ssru"
            if recurrent:
                weights[f"{name}.self_attn.input.weight"] = _tensor(arrays[f"{theirs}_rnn_W"]).T
                weights[f"{name}.self_attn.forget.weight"] = _tensor(arrays[f"{theirs}_rnn_Wf"]).T
                weights[f"{name}.self_attn.forget.bias"] = _tensor(arrays[f"{theirs}_rnn_bf"]).flatten()
                put_norm(f"{name}.self_attn_layer_norm", f"{theirs}_rnn_ffn")
            for attention, part in list(ATTENTION.items())[recurrent : 2 if side == "decoder" else 1]:
                for projection, letter in PROJECTIONS.items():
                    own = f"{name}.{attention}.{projection}"
                    weights[f"{own}.weight"] = _tensor(arrays[f"{theirs}_{part}_W{letter}"]).T
                    weights[f"{own}.bias"] = _tensor(arrays[f"{theirs}_{part}_b{letter}"]).flatten()
                put_norm(f"{name}.{attention}_layer_norm", f"{theirs}_{part}_Wo")
            for layer, number in FEED_FORWARD.items():
                weights[f"{name}.{layer}.weight"] = _tensor(arrays[f"{theirs}_ffn_W{number}"]).T
                weights[f"{name}.{layer}.bias"] = _tensor(arrays[f"{theirs}_ffn_b{number}"]).flatten()
            put_norm(f"{name}.final_layer_norm", f"{theirs}_ffn_ffn")
    return weights


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
