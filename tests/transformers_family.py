"""Small models of the family as transformers implements them, and our models with the same weights."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers_models import transformers

from transduce.interop.family import convert
from transduce.models.model import Model
from transduce.models.registry import create_model

V = 50
SMALL = {"vocab_size": V, "d_model": 32, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
LAYERS = {"encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
WIDE = {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48}


def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=16, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    return transformers.GPT2LMHeadModel(config)


def llama(**more: Any) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, rope_theta=50_000.0, **more,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def relative(style: str, **more: Any) -> Any:
    """A relative of Llama, or M2M-100."""
    names = {"mistral": "Mistral", "qwen3": "Qwen3", "gemma": "Gemma3", "gemma2": "Gemma2", "m2m": "M2M100"}
    if style == "m2m":
        config = transformers.M2M100Config(**SMALL, **LAYERS, **WIDE, max_position_embeddings=16)
        return transformers.M2M100ForConditionalGeneration(config)
    config = getattr(transformers, f"{names[style]}{'Text' * (style == 'gemma')}Config")(
        vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=7, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=32, **more,
        **{} if style == "qwen3" else {"sliding_window": 4},
    )  # fmt: skip
    return getattr(transformers, f"{names[style]}ForCausalLM")(config)


def t5(**more: Any) -> Any:
    config = transformers.T5Config(
        vocab_size=V, d_model=32, d_kv=6, d_ff=48, num_layers=2, num_decoder_layers=3, num_heads=4, dropout_rate=0.0,
        **more,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def t5_untied() -> Any:
    model = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def bart() -> Any:
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(**SMALL, **LAYERS, **WIDE, max_position_embeddings=16)
    )


def marian() -> Any:
    config = transformers.MarianConfig(
        **SMALL, **LAYERS, **WIDE, max_position_embeddings=16, activation_function="swish", scale_embedding=True,
        pad_token_id=V - 1, decoder_start_token_id=V - 1, decoder_vocab_size=V,
    )  # fmt: skip
    return transformers.MarianMTModel(config)


def ours_of(theirs: Any, folder: Path) -> Model:
    """Our model with the weights of a folder that transformers wrote."""
    theirs.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    config, weights = convert(settings, load_file(folder / "model.safetensors"))
    model = create_model(config, len(weights.get("embedding.weight_VD", ())))
    model.load_state_dict(weights)
    return model.eval()


def texts(seed: int, lengths: Sequence[int] = (7, 3, 9)) -> list[list[int]]:
    """Random texts of these lengths, without markers."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, V - 1, (length,), generator=generator).tolist() for length in lengths]
