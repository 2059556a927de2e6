"""Models of other toolkits to be damaged: random weights, a vocabulary, and changes of their files."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from transduce.interop.exchange import Exported
from transduce.interop.export_model import EXPORTERS
from transduce.interop.vocabulary import export_vocabulary
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.search.options import SearchConfig

Arrays = dict[str, Any]
WIDTH = 16
LEX = "lex.20.2.enpt.s2t.bin"


def random_arrays(shapes: dict[str, tuple[int, ...]]) -> Arrays:
    """Weights of these shapes."""
    generator = np.random.default_rng(1)
    return {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def byte_level(*special: str) -> Any:
    """A vocabulary of bytes, one pair of them, and special tokens at the end."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: number for number, piece in enumerate([*alphabet, "ab", "<|endoftext|>", *special])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("a", "b")]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def write_exported(format_name: str, tokenizer: Any, folder: Path) -> None:
    """A translation model as `transduce export` writes it, without the card of the original."""
    name, _, quantization = format_name.partition("-")
    marian: Any = {"positions": "marian", "zero_start": True, "norm_epsilon": 1e-6} if name == "marian" else {}
    config = EncoderDecoderConfig(
        encoder_layers=1, decoder_layers=1, d_model=WIDTH, d_ff=24, num_heads=2, output_bias=True, **marian
    )
    model = EncoderDecoder(config, tokenizer.vocab_size).eval()
    folder.mkdir()
    precision: Any = quantization or "float32"
    exported = Exported(
        model, tokenizer, export_vocabulary(tokenizer, []), {}, SearchConfig(), None, 80, quantization=precision
    )
    EXPORTERS[name].write(exported, folder)


def binary_file(arrays: Arrays) -> bytes:
    """Arrays in the format of Firefox Translations; the embeddings are 8-bit integers."""
    items = []
    for name, array in arrays.items():
        if name == "Wemb":
            one = np.float32(127 / np.abs(array).max())
            items.append((name, 0x4101, array.shape, np.rint(array * one).astype(np.int8).tobytes() + one.tobytes()))
        else:
            items.append((name, 0x101 if array.dtype == np.int8 else 0x404, array.shape, array.tobytes()))
    content = struct.pack("<QQ", 1, len(items))
    content += b"".join(struct.pack("<QQQQ", len(n) + 1, k, len(s), len(c)) for n, k, s, c in items)
    content += b"".join(name.encode() + b"\0" for name, *_ in items)
    content += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    return content + struct.pack("<Q", 0) + b"".join(stored for *_, stored in items)


def gpt2_shapes(size: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (size, WIDTH), "wpe.weight": (12, WIDTH)}
    layers = {"attn.c_attn": 3 * WIDTH, "attn.c_proj": WIDTH, "mlp.c_fc": 24, "mlp.c_proj": WIDTH}
    for name, width in layers.items():
        shapes[f"h.0.{name}.weight"] = (24 if name == "mlp.c_proj" else WIDTH, width)
        shapes[f"h.0.{name}.bias"] = (width,)
    for name in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (WIDTH,)
    return shapes


def write_gpt2(folder: Path) -> None:
    folder.mkdir()
    tokenizer = byte_level("[MASK]")
    size = tokenizer.get_vocab_size()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "model_type": "gpt2", "vocab_size": size, "n_layer": 1, "n_embd": WIDTH, "n_inner": 24, "n_head": 2,
        "n_positions": 12, "bos_token_id": size - 2, "eos_token_id": size - 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(random_arrays(gpt2_shapes(size)), folder / "model.safetensors")


def write_bert(folder: Path) -> None:
    folder.mkdir()
    tokenizer = byte_level("[MASK]")
    size = tokenizer.get_vocab_size()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "model_type": "bert", "vocab_size": size, "num_hidden_layers": 1, "hidden_size": WIDTH, "intermediate_size": 24,
        "num_attention_heads": 2, "cls_token_id": 5, "sep_token_id": 6,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))
    names, head = "bert.embeddings.", "cls.predictions."
    shapes: dict[str, tuple[int, ...]] = {
        f"{names}word_embeddings.weight": (size, WIDTH),
        f"{names}position_embeddings.weight": (12, WIDTH),
        f"{names}token_type_embeddings.weight": (2, WIDTH),
        f"{head}bias": (size,),
    }
    layer = "bert.encoder.layer.0."
    linear = {f"{layer}attention.self.{name}": (WIDTH, WIDTH) for name in ("query", "key", "value")} | {
        f"{layer}attention.output.dense": (WIDTH, WIDTH),
        f"{layer}intermediate.dense": (24, WIDTH),
        f"{layer}output.dense": (WIDTH, 24),
        f"{head}transform.dense": (WIDTH, WIDTH),
    }
    for name, shape in linear.items():
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]
    norms = [f"{names}LayerNorm", f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
    for name in [*norms, f"{head}transform.LayerNorm"]:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (WIDTH,)
    save_file(random_arrays(shapes), folder / "model.safetensors")


def write_gguf(path: Path) -> None:
    gguf: Any = pytest.importorskip("gguf")
    content = json.loads(byte_level("[MASK]").to_str())
    tokens = list(content["model"]["vocab"])
    names = {
        "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "h.0.attn.c_attn": "blk.0.attn_qkv",
        "h.0.attn.c_proj": "blk.0.attn_output", "h.0.mlp.c_fc": "blk.0.ffn_up", "h.0.mlp.c_proj": "blk.0.ffn_down",
        "h.0.ln_1": "blk.0.attn_norm", "h.0.ln_2": "blk.0.ffn_norm",
    }  # fmt: skip
    writer = gguf.GGUFWriter(str(path), "gpt2")
    for name, array in random_arrays(gpt2_shapes(len(tokens))).items():
        module, _, parameter = name.rpartition(".")
        stored = array.T.copy() if array.ndim == 2 and name.startswith("h.") else array
        writer.add_tensor(f"{names[module]}.{parameter}", stored)
    writer.add_block_count(1)
    writer.add_context_length(12)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(24)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(tokens) - 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy(original: Path, name: Path) -> Path:
    """A copy of a folder or file, which keeps its suffix."""
    if original.is_dir():
        return Path(shutil.copytree(original, name))
    return Path(shutil.copy(original, name.with_suffix(original.suffix)))


def edit_json(name: str, **values: object) -> Callable[[Path], None]:
    """Replace values of a JSON file."""

    def change(folder: Path) -> None:
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(settings | values))

    return change


def edit_weights(**changes: Any) -> Callable[[Path], None]:
    """Replace arrays of model.safetensors; in names, __ is a dot."""

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights |= {name.replace("__", "."): array for name, array in changes.items()}
        save_file(weights, folder / "model.safetensors")

    return change
