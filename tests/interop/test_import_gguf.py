"""Importing files of llama.cpp (GGUF), with random weights, against transformers."""

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from mixed_text import MIXED
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


GEMMA = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
MARKERS = [("<pad>", 3), ("<eos>", 3), ("<bos>", 3), ("<unk>", 2), ("\n\n", 4), ("▁▁", 4)]
"""The first tokens of Gemma, with their types in GGUF."""


def sentencepiece_vocabulary() -> tuple[list[tuple[str, int, float]], Any]:
    """Tokens, types and scores of a vocabulary as Gemma's, and the processor of SentencePiece with them."""
    spm: Any = pytest.importorskip("sentencepiece")
    protocol: Any = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    content = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(MIXED * 2), model_writer=content, vocab_size=700, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False,
        hard_vocab_limit=False, minloglevel=2, user_defined_symbols=["\n\n", "▁▁"],
    )  # fmt: skip
    model = protocol.ModelProto.FromString(content.getvalue())
    pieces = [piece for piece in model.pieces if piece.type in (1, 6)]
    del model.pieces[:]
    for piece, kind in MARKERS:
        model.pieces.add(piece=piece, type=kind, score=-1000)
    model.pieces.extend(pieces)
    model.trainer_spec.unk_id, model.trainer_spec.bos_id, model.trainer_spec.eos_id = 3, 2, 1
    tokens = [(piece.piece, piece.type, piece.score) for piece in model.pieces]
    return tokens, spm.SentencePieceProcessor(model_proto=model.SerializeToString())


def k_blocks(kind: str, rows: int, columns: int, seed: int) -> tuple[Any, Any]:
    """Random blocks of 256 weights of the types Q4_K and Q6_K as bytes, and what they stand for, as llama.cpp defines.

    Q4_K: two scales of the block, eight scales and offsets of 6 bits for 32 weights each, and weights of 4 bits. Q6_K:
    4 and 2 bits of every weight, sixteen scales of 8 bits for 16 weights each, and a scale of the block.
    """
    chance = np.random.default_rng(seed)
    block_bytes, numbers = [], []
    for _ in range(rows * columns // 256):
        scale, offset = chance.normal(0, 1e-3, 2).astype(np.float16)
        if kind == "Q4_K":
            packed, quants = chance.integers(0, 256, 12), chance.integers(0, 256, 128)
            block_bytes.append(scale.tobytes() + offset.tobytes() + bytes([*packed, *quants]))
            for n in range(8):
                if n < 4:
                    small, low = packed[n] & 63, packed[n + 4] & 63
                else:
                    small = packed[n + 4] & 15 | packed[n - 4] >> 6 << 4
                    low = packed[n + 4] >> 4 | packed[n] >> 6 << 4
                half = quants[n // 2 * 32 : n // 2 * 32 + 32]
                values = half >> 4 if n % 2 else half & 15
                numbers += [float(scale) * small * value - float(offset) * low for value in values]
        else:
            low, high = chance.integers(0, 256, 128), chance.integers(0, 256, 64)
            scales = chance.integers(-128, 128, 16)
            block_bytes.append(bytes([*low, *high, *(scales % 256)]) + scale.tobytes())
            for n in range(256):
                part, inner = divmod(n, 128)
                quarter, place = divmod(inner, 32)
                four = low[part * 64 + quarter % 2 * 32 + place] >> quarter // 2 * 4 & 15
                two = high[part * 32 + place] >> quarter * 2 & 3
                numbers.append(float(scale) * scales[n // 16] * ((four | two << 4) - 32))
    return (
        np.frombuffer(b"".join(block_bytes), np.uint8).reshape(rows, -1),
        np.array(numbers, np.float32).reshape(rows, columns),
    )


def test_gemma(tmp_path: Path) -> None:
    """Weights in blocks of Q4_K and Q6_K, SentencePiece's vocabulary: transformers' logits and SentencePiece's ids."""
    gguf: Any = pytest.importorskip("gguf")
    tokens, processor = sentencepiece_vocabulary()
    config = transformers.Gemma3TextConfig(
        vocab_size=len(tokens), hidden_size=256, intermediate_size=256, num_hidden_layers=7, num_attention_heads=2,
        num_key_value_heads=1, head_dim=128, max_position_embeddings=64, sliding_window=4, query_pre_attn_scalar=128,
        bos_token_id=2, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    model = randomized(transformers.Gemma3ForCausalLM(config), 0.05)
    writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), "gemma3")
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    for number, (name, parameter) in enumerate(model.named_parameters()):
        module, x = name.removesuffix(".weight"), parameter.data.numpy()
        if module not in outer:
            _, _, layer, inner = module.split(".", 3)
            outer[module] = f"blk.{layer}.{GEMMA[inner]}"
        if x.ndim == 2 and ".layers.0." in module:
            kind = ("Q4_K", "Q6_K")[number % 2]
            quantized, x = k_blocks(kind, x.shape[0], x.shape[1], number)
            parameter.data = torch.from_numpy(x)
            writer.add_tensor(f"{outer[module]}.weight", quantized, raw_dtype=getattr(gguf.GGMLQuantizationType, kind))
        else:
            writer.add_tensor(f"{outer[module]}.weight", x + 1 if x.ndim == 1 else x)
    for key, value in {
        "block_count": 7, "context_length": 64, "embedding_length": 256, "feed_forward_length": 256,
        "attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": 128,
        "attention.value_length": 128, "attention.sliding_window": 4,
    }.items():  # fmt: skip
        writer.add_uint32(f"gemma3.{key}", value)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token for token, _, _ in tokens])
    writer.add_token_types([kind for _, kind, _ in tokens])
    writer.add_token_scores([score for _, _, score in tokens])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    saved = imported(tmp_path / "model.gguf", tmp_path / "ours")
    texts = [[2, 15, 9, 200, 17, 40, 41, 42, 300], [30, 31]]
    expected = torch.cat([model(input_ids=torch.tensor([text])).logits[0] for text in texts])
    assert_close(logits_of_original_tokens(saved, texts), expected)
    order = saved.tokenizer.order
    for text in [*(text for text in MIXED if "<pad>" not in text), "a  b\n\nc", "  two", "naïve 👍 ⌘"]:
        ids = saved.tokenizer.encode(text)
        assert [order.originals[token] for token in ids] == processor.encode(text)
        assert b"".join(map(saved.tokenizer.raw_bytes, ids)).decode() == text.replace("▁", " ")


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
