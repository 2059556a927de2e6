"""Random models and tokenizers that transformers wrote, and their import."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from mixed_text import MIXED
from torch import Tensor

from transduce.data.batch import Batch
from transduce.interop.import_model import import_model
from transduce.interop.imported_tokenizers import ImportedTokenizer
from transduce.models.folder import SavedModel, load_model

tokenizers: Any = pytest.importorskip("tokenizers")
transformers: Any = pytest.importorskip("transformers")

END = "<|endoftext|>"
WHISPER_SPECIAL = [END, "<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>", "<|notimestamps|>"]


def byte_level(special: Sequence[str]) -> Any:
    """A byte-level vocabulary of 300 tokens; the special ones are last."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(MIXED, trainer)
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def randomized(model: Any, scale: float = 0.3) -> Any:
    """The model with random weights everywhere, so that a norm or a bias that is left out shows."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:  # sinusoids do not
            noise = torch.randn(parameter.shape, generator=generator) * scale
            parameter.data = 1 + noise if parameter.dim() == 1 and "norm" in name.lower() else noise
    for name, buffer in model.named_buffers():
        if name == "final_logits_bias":
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return model.eval()


def imported(path: Path, out: Path) -> SavedModel:
    import_model(path, out)
    return load_model(out)


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


def logits_of_original_tokens(saved: SavedModel, texts: list[list[int]]) -> Tensor:
    """The logits that our model gives to the original tokens, for texts of original tokens."""
    assert isinstance(saved.tokenizer, ImportedTokenizer)
    order = saved.tokenizer.order
    with torch.inference_mode():
        batch = Batch.of(text=[[order.ids[token] for token in text] for text in texts])
        return saved.model.logits(saved.model(batch))[:, order.ids]


def gpt2(folder: Path) -> Any:
    tokenizer = byte_level([END])
    size = tokenizer.get_vocab_size()
    config = transformers.GPT2Config(
        vocab_size=size, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=size - 1, eos_token_id=size - 1
    )
    model = randomized(transformers.GPT2LMHeadModel(config))
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return model


def whisper(special: Sequence[str] = WHISPER_SPECIAL, times: int = 5, **more: Any) -> Any:
    tokenizer = byte_level(special)
    size = tokenizer.get_vocab_size() + times
    ids = {name: tokenizer.token_to_id(name) for name in special}
    config = transformers.WhisperConfig(
        vocab_size=size, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=100,
        **{"max_target_positions": 16, "begin_suppress_tokens": None, "suppress_tokens": [1, 2]} | more,
        num_mel_bins=80, dropout=0.0, pad_token_id=ids[END], bos_token_id=ids[END],
        eos_token_id=ids[END], decoder_start_token_id=ids["<|startoftranscript|>"],
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    return randomized(model), tokenizer
