"""Importing files of llama.cpp (GGUF), with random weights, against transformers."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from transformers_models import (
    END,
    assert_close,
    byte_level,
    imported,
    logits_of_original_tokens,
    randomized,
    transformers,
)

from transduce.errors import ModelError
from transduce.interop.import_model import import_model
from transduce.interop.imported_tokenizers import ImportedTokenizer


def gguf_llama(path: Path, further: Mapping[str, int] = MappingProxyType({}), *, weights: bool = True) -> Any:
    """A file as llama.cpp's converter writes it, with matrices in several types; returns the model of transformers.

    `further` are keys that it does not write.
    """
    gguf: Any = pytest.importorskip("gguf")
    tokenizer = byte_level([END, "<|im_start|>", "<|im_end|>"])
    content = json.loads(tokenizer.to_str())
    size = tokenizer.get_vocab_size()
    config = transformers.LlamaConfig(
        vocab_size=size, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, rope_theta=50_000.0, tie_word_embeddings=False,
    )  # fmt: skip
    model = randomized(transformers.LlamaForCausalLM(config))
    names = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    kinds = [getattr(gguf.GGMLQuantizationType, name) for name in ("Q8_0", "Q4_1", "F16", "F32")]
    writer = gguf.GGUFWriter(str(path), "llama")
    for number, (name, parameter) in enumerate(model.named_parameters() if weights else ()):
        module = name.removesuffix(".weight")
        if module.startswith("model.layers."):
            _, _, layer, inner = module.split(".", 3)
            ours = f"blk.{layer}.{names[inner]}.weight"
        else:
            ours = f"{names[module]}.weight"
        x = parameter.data.numpy()
        heads = {"q_proj": 4, "k_proj": 2}.get(module.rsplit(".", 1)[-1])
        if heads:  # llama.cpp rotates neighbours
            x = x.reshape(heads, 2, len(x) // heads // 2, -1).swapaxes(1, 2).reshape(x.shape)
        kind = kinds[number % len(kinds)] if x.ndim == 2 else kinds[-1]
        quantized = gguf.quants.quantize(x, kind)
        writer.add_tensor(ours, quantized, raw_dtype=kind)
        x = gguf.quants.dequantize(quantized, kind)
        if heads:
            x = x.reshape(heads, len(x) // heads // 2, 2, -1).swapaxes(1, 2).reshape(x.shape)
        parameter.data = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(50_000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    vocabulary = content["model"]["vocab"] | {token["content"]: token["id"] for token in content["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (size - 3) + [3] * 3)
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_bos_token_id(size - 2)
    writer.add_eos_token_id(size - 1)
    writer.add_add_bos_token(False)
    for key, value in further.items():
        writer.add_uint32(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def test_gguf(tmp_path: Path) -> None:
    theirs = gguf_llama(tmp_path / "model.gguf")
    saved = imported(tmp_path / "model.gguf", tmp_path / "ours")
    texts = [[5, 9, 200, 17, 40, 41, 42], [30, 31]]
    expected = torch.cat([theirs(input_ids=torch.tensor([text])).logits[0] for text in texts])
    assert_close(logits_of_original_tokens(saved, texts), expected)
    assert saved.facts["imported"] == "llama (GGUF)"
    assert saved.tokenizer.decode(saved.tokenizer.encode("naïve 12 café 👍")) == "naïve 12 café 👍"
    size = len(expected[0])
    assert isinstance(saved.tokenizer, ImportedTokenizer)
    assert saved.tokenizer.order.markers == (size - 1, size - 1, size - 3, size - 1)


def test_damaged_gguf(tmp_path: Path) -> None:
    gguf_llama(tmp_path / "model.gguf")
    content = (tmp_path / "model.gguf").read_bytes()
    for number, damaged in enumerate([b"", b"GGUF", content[:3000], content[: len(content) // 2], b"x" * 4000]):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match=rf"{number}\.gguf: "):
            import_model(path, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


HARMLESS = {
    "llama.vocab_size": 259, "llama.rope.dimension_count": 16, "llama.attention.value_length": 16,
    "llama.attention.key_length": 16, "split.no": 1, "split.count": 1, "tokenizer.ggml.scores": 7,
    "tokenizer.ggml.eom_token_id": 7, "tokenizer.ggml.fim_pre_token_id": 7, "tokenizer.ggml.mask_token_id": 7,
    "llama.expert_count": 0, "llama.attention.sliding_window": 0, "tokenizer.ggml.add_eos_token": 0,
    "general.quantization_version": 2, "general.file_type": 7, "general.alignment": 32,
    "quantize.imatrix.chunks_count": 7,
}  # fmt: skip
"""Keys that describe the file, or whose value changes nothing."""


def test_every_other_key_of_gguf_is_refused_by_name(tmp_path: Path) -> None:
    """The keys are those that the package gguf knows."""
    gguf: Any = pytest.importorskip("gguf")
    groups = ("LLM", "Attention", "Rope", "Split", "SSM", "WKV", "Tokenizer", "Adapter")
    tables = [vars(getattr(gguf.Keys, group)) for group in groups]
    texts = {text.replace("{arch}", "llama") for table in tables for name, text in table.items() if name.isupper()}
    texts |= {"general.type", "llama.invented"}
    gguf_llama(tmp_path / "plain.gguf", weights=False)
    written = gguf.GGUFReader(tmp_path / "plain.gguf").fields.keys()
    keys = sorted({text for text in texts if "{" not in text} - written - HARMLESS.keys())
    ids = [key for key in keys if key.endswith("_token_id")]
    others = [key for key in keys if key.startswith(("tokenizer.huggingface", "tokenizer.rwkv", "tokenizer.chat"))]
    refused = [key for key in keys if key not in ids + others]
    assert len(refused) > 60
    for key in refused:
        gguf_llama(tmp_path / "model.gguf", {key: 7}, weights=False)
        with pytest.raises(ModelError, match=re.escape(f"GGUF models with {key} = 7 cannot be imported")):
            import_model(tmp_path / "model.gguf", tmp_path / "ours")


def test_harmless_keys_of_gguf_change_nothing(tmp_path: Path) -> None:
    models = {}
    for name, further in (("plain", {}), ("harmless", HARMLESS)):
        gguf_llama(tmp_path / f"{name}.gguf", further)
        models[name] = imported(tmp_path / f"{name}.gguf", tmp_path / name).model.state_dict()
    assert models["plain"].keys() == models["harmless"].keys()
    assert all(torch.equal(x, models["harmless"][name]) for name, x in models["plain"].items())
