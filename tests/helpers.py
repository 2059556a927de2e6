"""What several test files share: small models, random sentences, corpora on disk."""

import math
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.data.batch import Batch, Stream
from transduce.data.shards import TokenShards, write_index, write_shard
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.model import Model
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention

FIRST_WORD = 4
"""Ids below are markers: PAD, UNK, BOS, EOS."""


needs_node = pytest.mark.skipif(not shutil.which("node"), reason="Node is not installed")


def small_model(seed: int = 0, vocab_size: int = 23, **settings: object) -> EncoderDecoder:
    """A tiny model without dropout. Biases and norms are random too, so that none of them goes unnoticed."""
    sizes: dict[str, object] = {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "d_model": 16,
        "d_ff": 24,
        "num_heads": 4,
        "dropout": 0.0,
        "max_positions": 64,
    }
    model = EncoderDecoder(EncoderDecoderConfig(**(sizes | settings)), vocab_size)  # type: ignore[arg-type]
    randomize(model, seed)
    return model


def small_language_model(seed: int = 0, vocab_size: int = 23, **settings: object) -> DecoderOnly:
    """A tiny language model with random weights, biases and norms."""
    sizes: dict[str, object] = {"layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 4, "dropout": 0.0}
    model = DecoderOnly(DecoderOnlyConfig(**(sizes | settings)), vocab_size)  # type: ignore[arg-type]
    randomize(model, seed)
    return model.eval()


@torch.no_grad()
def randomize(model: nn.Module, seed: int) -> None:
    """Draw all weights, also biases and norms."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(1 + 0.3 * noise if name.endswith("norm.weight") else 0.3 * noise)


def use_attention(model: nn.Module, attend: Callable[..., Tensor]) -> None:
    """Let every attention of the model use this implementation."""
    for module in model.modules():
        if isinstance(module, SelfAttention | CrossAttention):
            module.attend = attend


def random_sentences(lengths: Sequence[int], vocab_size: int, seed: int) -> list[list[int]]:
    """Sentences of these lengths, of words alone."""
    draw = random.Random(seed)
    return [[draw.randrange(FIRST_WORD, vocab_size) for _ in range(length)] for length in lengths]


def packed_stream(sentences: Sequence[Sequence[int]]) -> Stream:
    """Sentences as a packed stream of tokens."""
    return Batch.of(src=sentences)["src"]


def logits(model: Model, hidden_LD: Tensor) -> Tensor:
    """The output projection of hidden vectors."""
    return F.linear(hidden_LD, model.output_weight_VD)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the gradients, which are then cleared."""
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    return found


def paper_sinusoids(length: int, d_model: int) -> list[list[float]]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)) (section 3.5)."""
    table = []
    for position in range(length):
        row = []
        for column in range(d_model):
            two_i = column - column % 2
            angle = position / 10000 ** (two_i / d_model)
            row.append(math.sin(angle) if column % 2 == 0 else math.cos(angle))
        table.append(row)
    return table


def write_corpus(folder: Path, lengths: Sequence[tuple[int, int]], shard_pairs: int = 1000) -> TokenShards:
    """A corpus of pairs with these (source, target) lengths. Ids tell pairs apart: all are the pair's number."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard, start in enumerate(range(0, len(lengths), shard_pairs)):
        part = list(enumerate(lengths))[start : start + shard_pairs]
        sides = [[[number % 65536] * pair[side] for number, pair in part] for side in (0, 1)]
        write_shard(folder, shard, sides, vocab_size=65536)
    write_index(folder, {})
    return TokenShards(folder)
