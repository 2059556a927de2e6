"""Marian: reading models of the type transformer, and writing them for `marian-decoder` and Bergamot (Firefox).

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
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transduce.disk import require_file
from transduce.errors import ModelError
from transduce.interop.exchange import (
    SOURCE_EMBEDDING,
    ByteReader,
    Exported,
    Exporter,
    Original,
    require_exportable,
    transformers_weights,
)
from transduce.interop.family import fairseq_modules, place
from transduce.interop.imported_tokenizers import ImportedTokenizer
from transduce.interop.marian_shortlist import read_marian_shortlist
from transduce.interop.vocabulary import DEFAULT_NAMES, NEVER, separate_vocabularies, shared_vocabulary
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.folder import read_notes
from transduce.models.model import Model
from transduce.models.weights_file import physical_memory
from transduce.search.decoder import NEVER_GENERATED
from transduce.tokenizers.any_tokenizer import TokenizerPair
from transduce.tokenizers.tokenizer import Tokenizer

MODEL, BINARY_MODEL, VOCABULARY, SETTINGS = "model.npz", "model.intgemm8.bin", "vocab.spm", "special:model.yml"
SEPARATE_VOCABULARIES = ("srcvocab.spm", "trgvocab.spm")
_SIDES = (r"src|source", r"trg|tgt|target")
"""What the names of files of source and target contain."""
_DIRECTION = re.compile(r"\.([a-z]{2})([a-z]{2})\.")
"""The languages in the name of a model of Firefox: model.enpt.intgemm.alphas.bin."""
EPSILON = 1e-6
"""Number that Marian's norms add to the variance."""
_MODULES = {
    "self_attn.q_proj": "self_Wq", "self_attn.k_proj": "self_Wk", "self_attn.v_proj": "self_Wv",
    "self_attn.out_proj": "self_Wo", "self_attn_layer_norm": "self_Wo_ln", "self_attn.input": "rnn_W",
    "self_attn.forget": "rnn_Wf", "encoder_attn.q_proj": "context_Wq", "encoder_attn.k_proj": "context_Wk",
    "encoder_attn.v_proj": "context_Wv", "encoder_attn.out_proj": "context_Wo",
    "encoder_attn_layer_norm": "context_Wo_ln", "fc1": "ffn_W1", "fc2": "ffn_W2", "final_layer_norm": "ffn_ffn_ln",
    "layer_norm": "top_ln",
}  # fmt: skip
"""The names of modules in transformers, and what Marian calls their matrix, or the norm."""
_LENGTH = 1024
"""Number of positions: sinusoids have no limit of their own."""
_REQUIRED = {
    "type": "transformer", "transformer-postprocess-emb": "d",
    "transformer-no-projection": "false", "transformer-ffn-depth": "2", "transformer-tied-layers": "[]",
    "transformer-no-bias": "false", "transformer-no-affine": "false", "transformer-pool": "false",
    "transformer-rnn-projection": "false", "transformer-train-position-embeddings": "false", "lemma-dim-emb": "0",
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
_NEEDED = {"positions": "marian", "zero_start": True, "norm_epsilon": EPSILON}


def find_marian(folder: Path) -> Path | None:
    """The model of a folder, if it is one of Marian."""
    if not folder.is_dir() or (folder / "config.json").exists():
        return None
    found = [*sorted(folder.glob("*.npz")), *sorted(folder.glob("model*.bin"))]
    if len(found) > 1:
        raise ModelError(f"{folder}: it has several models: {', '.join(path.name for path in found[:4])}; keep one")
    return found[0] if found else None


def read_marian(path: Path) -> Original:
    """The model of this file, and the vocabulary and shortlist of its folder."""
    settings, weights = _read_model(path)
    named = _DIRECTION.search(path.name)
    original = Original(
        "Marian", settings, weights, _read_vocabularies(path.parent, settings), read_notes(path.parent),
        direction=(named[1], named[2]) if named else None,
    )  # fmt: skip
    return replace(original, shortlist=read_marian_shortlist(path.parent, original.order, original.source_order))


def _read_vocabularies(folder: Path, settings: Mapping[str, Any]) -> ImportedTokenizer | TokenizerPair:
    """The vocabulary of a Marian model: `.spm` models and a `.yml` list of tokens, or `.spm` models by themselves.

    If source and target have vocabularies of their own, the names of the files tell whose they are.
    """
    lists, roles = sorted(folder.glob("*vocab*.yml")), {**DEFAULT_NAMES, "decoder_start": "<s>"}
    if "source_vocab_size" in settings:
        spm, yml = _source_and_target(folder.glob("*.spm")), _source_and_target(lists)
        if spm is None or (lists and yml is None):
            raise ModelError(
                f"{folder}: source and target of this model have vocabularies of their own; the folder needs a file "
                "srcvocab.spm and a file trgvocab.spm, or source.spm, target.spm, source.vocab.yml, target.vocab.yml"
            )
        tokens = [read_vocabulary(path) for path in yml] if yml else [Tokenizer.load(path).names for path in spm]
        sizes = settings["source_vocab_size"], settings["vocab_size"]
        return separate_vocabularies(folder, (spm[0].name, spm[1].name), (tokens[0], tokens[1]), sizes, settings, roles)
    if len(lists) == 1 and (folder / "source.spm").exists():
        return shared_vocabulary(folder, ("source.spm", "target.spm"), read_vocabulary(lists[0]), settings, roles)
    models = sorted(folder.glob("*.spm"))
    if len(models) != 1:
        raise ModelError(
            f"{folder}: no vocabulary; it needs one .spm file, or source.spm, target.spm and a file named *vocab*.yml"
        )
    names = Tokenizer.load(models[0]).names
    return shared_vocabulary(folder, (models[0].name, models[0].name), names, settings, roles)


def _source_and_target(paths: Iterable[Path]) -> tuple[Path, Path] | None:
    """The file of the source and that of the target, by their names; None unless there is one of each."""
    found = list(paths)
    source, target = ([path for path in found if re.search(side, path.name)] for side in _SIDES)
    return (source[0], target[0]) if len(source) == len(target) == 1 else None


def _read_model(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings of `config.json` and the weights with their names in transformers."""
    arrays = _read_npz(path) if path.suffix == ".npz" else read_binary(path)
    try:
        options = _parse_settings(bytes(arrays.pop(SETTINGS)).rstrip(b"\0").decode())
        settings = _settings(options, arrays)
        return settings, _weights(settings, arrays)
    except KeyError as error:
        raise ModelError(f"{path}: the model has no {error}") from None
    except (ValueError, IndexError, RuntimeError):
        raise ModelError(f"{path}: not a Transformer of Marian, or damaged") from None
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
    except Exception:  # zipfile, zlib and numpy raise whatever a damaged file leads to
        raise ModelError(f"{path}: not an .npz file, or damaged") from None


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
        "model_type": "transformer", "vocab_size": embedding.shape[0], "d_model": embedding.shape[1],
        "encoder_layers": int(options["enc-depth"]), "decoder_layers": int(options["dec-depth"]),
        "encoder_attention_heads": int(options["transformer-heads"]),
        "decoder_attention_heads": int(options["transformer-heads"]),
        "encoder_ffn_dim": arrays["encoder_l1_ffn_W1"].shape[1],
        "decoder_ffn_dim": arrays["decoder_l1_ffn_W1"].shape[1], "normalize_before": pre,
        "activation_function": activation, "max_position_embeddings": _LENGTH, "scale_embedding": True,
        "tie_word_embeddings": "decoder_ff_logit_out_W" not in arrays, "start_from_zero": True,
        "decoder_cell": "attention" if cell[0] == "self-attention" else "ssru", "layer_norm_epsilon": EPSILON,
        "dropout": 0.1,
    }  # fmt: skip


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
    config = EncoderDecoderConfig(
        norm="pre" if settings["normalize_before"] else "post",
        **{name: settings[name] for name in ("encoder_layers", "decoder_layers", "decoder_cell")},
    )
    for _, names in fairseq_modules(config):
        for name, kind in product(names, ("weight", "bias")):
            theirs = _marian_name(name, kind, config.decoder_cell)
            if theirs is not None:  # the name of a norm may end in _pre
                x = _tensor(arrays[f"{theirs}_pre" if f"{theirs}_pre" in arrays else theirs])
                weights[f"model.{name}.{kind}"] = x.flatten() if kind == "bias" or "norm" in name else x.T
    return weights


def _marian_name(name: str, kind: str, decoder_cell: str) -> str | None:
    """Marian's name of the weight or bias of a module, by its name in transformers; None if it has none.

    Matrices are stored transposed, vectors as rows.
    """
    side, layer, module = place(name)
    theirs = _MODULES[module]
    if decoder_cell == "ssru" and side == "decoder":
        if module == "self_attn.input" and kind == "bias":
            return None
        theirs = theirs.replace("self_Wo_ln", "rnn_ffn_ln")
    if theirs.endswith("_ln"):
        theirs += "_scale" if kind == "weight" else "_bias"
    elif kind == "bias":
        theirs = theirs.replace("_W", "_b")
    return f"{side}_{theirs}" if layer is None else f"{side}_l{layer + 1}_{theirs}"


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
    file = ByteReader(path.read_bytes())
    try:
        version, count = file.numbers("Q", 2)
        if version != 1 or count > _MAX_ARRAYS:
            raise ValueError(f"version {version} with {count:,} arrays")
        headers = [file.numbers("Q", 4) for _ in range(count)]
        if deep := [rank for _, _, rank, _ in headers if rank > _MAX_RANK]:
            raise ValueError(f"an array has {deep[0]:,} dimensions")
        names = [file.take(length)[:-1].decode() for length, *_ in headers]
        shapes = [file.numbers("i", rank) for _, _, rank, _ in headers]
        file.skip(file.number("Q"))  # a gap
        arrays = {
            name: _stored_array(name, kind, shape, file.take(size))
            for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True)
        }
    except (ValueError, struct.error, KeyError, UnicodeDecodeError, MemoryError) as error:
        raise ModelError(f"{path}: not a binary model of Marian, or damaged: {error}") from None
    return arrays


def _stored_array(name: str, kind: int, shape: tuple[int, ...], content: bytes | bytearray) -> Any:
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


def check(model: Model) -> EncoderDecoder:
    found = require_exportable(
        model, "Marian", decoder_cell=("attention", "ssru"), norm=("post",), activation=("relu", "swish"),
        embedding=("scaled",), tie_output=(True,),
    )  # fmt: skip
    if any(getattr(found.config, name) != value for name, value in _NEEDED.items()):
        settings = ", ".join(f"model.{name} = {str(value).lower()}" for name, value in _NEEDED.items())
        raise ModelError(f"Marian has sinusoids, a start of outputs and norms of its own: train with {settings}")
    return found


def write(exported: Exported, folder: Path) -> None:
    vocabulary = exported.vocabulary
    if vocabulary.source_pieces is None and vocabulary.source_spm != vocabulary.target_spm:
        raise ModelError("Marian has no two SentencePiece models with one list of tokens, as this model has")
    model, weights = exported.model, transformers_weights(exported.model)
    bias_V = weights["final_logits_bias"].clone()
    bias_V[:, NEVER_GENERATED] = NEVER
    arrays: dict[str, Any] = {"decoder_ff_logit_out_b": _array(bias_V)}
    if vocabulary.source_pieces is None:
        arrays["Wemb"] = _array(weights["model.shared.weight"])
    else:
        arrays["encoder_Wemb"] = _array(weights[SOURCE_EMBEDDING])
        arrays["decoder_Wemb"] = _array(weights["model.shared.weight"])
    for _, names in fairseq_modules(model.config):
        for name, kind in product(names, ("weight", "bias")):
            if (theirs := _marian_name(name, kind, model.config.decoder_cell)) is not None:
                x = weights[f"model.{name}.{kind}"]
                arrays[theirs] = _array(x.T if x.dim() == 2 else x[None])
    settings = _model_settings(exported)
    arrays[SETTINGS] = np.frombuffer(settings.encode() + b"\0", np.int8)
    if exported.quantization == "int8":
        (folder / MODEL).unlink(missing_ok=True)
        write_binary(folder / BINARY_MODEL, arrays)
    else:
        np.savez(folder / MODEL, **arrays)
    for name, spm in zip(_files(exported), (vocabulary.source_spm, vocabulary.target_spm), strict=True):
        (folder / name).write_bytes(spm)
    (folder / "config.yml").write_text(_decoder_settings(exported), encoding="utf-8")


def _model_file(exported: Exported) -> str:
    return BINARY_MODEL if exported.quantization == "int8" else MODEL


def _files(exported: Exported) -> tuple[str, str]:
    """The names of the vocabularies of source and target."""
    return (VOCABULARY, VOCABULARY) if exported.vocabulary.source_pieces is None else SEPARATE_VOCABULARIES


def _array(x: Tensor) -> npt.NDArray[Any]:
    return np.ascontiguousarray(x.numpy())


def _model_settings(exported: Exported) -> str:
    """The settings inside the model."""
    config, size = exported.model.config, exported.model.vocab_size
    shared = config.source_vocab_size is None
    return _yaml({
        "type": "transformer",
        "dim-vocabs": [config.source_vocab_size or size, size],
        "dim-emb": config.d_model, "enc-depth": config.encoder_layers, "dec-depth": config.decoder_layers,
        "transformer-heads": config.num_heads,
        "transformer-dim-ffn": config.d_ff, "transformer-decoder-dim-ffn": config.d_ff,
        "transformer-ffn-depth": 2, "transformer-decoder-ffn-depth": 2,
        "transformer-ffn-activation": config.activation,
        "transformer-preprocess": "", "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d", "transformer-postprocess-top": "",
        "transformer-decoder-autoreg": "rnn" if config.decoder_cell == "ssru" else "self-attention",
        "dec-cell": "ssru", "dec-cell-base-depth": 2, "dec-cell-high-depth": 1,
        "transformer-no-projection": False, "transformer-no-bias": False, "transformer-no-affine": False,
        "transformer-pool": False, "transformer-tied-layers": [], "transformer-train-position-embeddings": False,
        "transformer-guided-alignment-layer": "last",
        "tied-embeddings": not shared, "tied-embeddings-src": False, "tied-embeddings-all": shared,
        "ulr": False, "skip": False, "layer-normalization": False, "input-types": [], "lemma-dim-emb": 0,
        "version": "v1.12.0",
    })  # fmt: skip


def _decoder_settings(exported: Exported) -> str:
    """The settings of `marian-decoder`."""
    search = exported.search
    settings: dict[str, Any] = {
        "relative-paths": True, "models": [_model_file(exported)], "vocabs": list(_files(exported)),
        "beam-size": search.beam, "normalize": search.length_penalty if search.beam > 1 else 0,
        "max-length": exported.max_source_length, "max-length-factor": 3, "word-penalty": 0,
    }  # fmt: skip
    if exported.quantization == "int8":
        settings["gemm-precision"] = "int8shiftAll"
    return _yaml(settings)


def _yaml(settings: dict[str, Any]) -> str:
    def written(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list):
            return "[" + ", ".join(map(written, value)) + "]"
        return f'"{value}"' if isinstance(value, str) else str(value)

    return "".join(f"{name}: {written(value)}\n" for name, value in settings.items())


def limits(exported: Exported) -> list[str]:
    if exported.quantization != "int8":
        return []
    return [
        f"Bergamot, the engine of Firefox Translations, runs `{BINARY_MODEL}` with `gemm-precision: int8shiftAll`. "
        "It also rounds activations to 8 bits, which transduce import does not."
    ]


def _names(exported: Exported) -> dict[str, str]:
    source, target = _files(exported)
    return {"model": _model_file(exported), "vocabulary": source, "target_vocabulary": target}


MARIAN = Exporter("marian", check, write, lambda *_: None, limits, quantizations=("float32", "int8"), names=_names)
