"""The peers of the training benchmarks: the same Transformer as others implement it, on padded batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from setting import SEED, Ints
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.nn.positions import sinusoids
from transduce.tokenizers.tokenizer import BOS, EOS, PAD

POOL_BATCHES = 64
"""Batches whose sentences are sorted by length together."""
Pair = tuple[list[int], list[int]]


def random_pairs(lengths: Ints, vocabulary: int) -> list[Pair]:
    """Pairs of random token ids, without markers, with these lengths."""
    random = np.random.default_rng(SEED)
    return [(*(random.integers(EOS + 1, vocabulary, size=n).tolist() for n in pair),) for pair in lengths.tolist()]


def batches_by_length(pairs: Sequence[Pair], batch_tokens: int, count: int) -> list[list[Pair]]:
    """Batches of pairs of similar lengths, of at most `batch_tokens` tokens a side with padding, in random order."""
    random = np.random.default_rng(SEED)
    widths = [max(map(len, pair)) + 1 for pair in pairs]
    batches: list[list[Pair]] = []
    pool_pairs = int(POOL_BATCHES * batch_tokens / (sum(widths) / len(widths)))
    for start in range(0, len(pairs), pool_pairs):
        numbers = range(start, min(start + pool_pairs, len(pairs)))
        pool: list[list[Pair]] = [[]]
        for n in sorted(numbers, key=lambda n: (widths[n], len(pairs[n][0]))):
            if (len(pool[-1]) + 1) * widths[n] > batch_tokens:
                pool.append([])
            pool[-1].append(pairs[n])
        batches += [pool[n] for n in random.permutation(max(len(pool) - 1, 1))]  # the last one is seldom full
        if len(batches) >= count:
            break
    return batches[:count]


@dataclass(frozen=True)
class PaddedBatch:
    """A batch of sentences, one a row, filled up with PAD."""

    src_BS: Tensor
    tgt_BT: Tensor
    labels_BT: Tensor
    target_tokens: int


def padded(pairs: Sequence[Pair], device: torch.device | str = "cpu") -> PaddedBatch:
    """The batch of these pairs."""

    def grid(sentences: list[list[int]]) -> Tensor:
        return nn.utils.rnn.pad_sequence(
            [torch.tensor(sentence) for sentence in sentences], batch_first=True, padding_value=PAD
        ).to(device)

    return PaddedBatch(
        grid([[*src, EOS] for src, _ in pairs]),
        grid([[BOS, *tgt] for _, tgt in pairs]),
        grid([[*tgt, EOS] for _, tgt in pairs]),
        sum(len(tgt) + 1 for _, tgt in pairs),
    )


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with the paper's embeddings."""

    def __init__(self, config: EncoderDecoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.register_buffer("positions", sinusoids(1024, config.d_model))
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model, config.num_heads, config.encoder_layers, config.decoder_layers, config.d_ff, config.dropout,
            batch_first=True,
        )  # fmt: skip

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Logits (B, T, V)."""
        padding_BS = batch.src_BS == PAD
        causal_TT = nn.Transformer.generate_square_subsequent_mask(batch.tgt_BT.shape[1], batch.tgt_BT.device)
        hidden = self.transformer(
            self._embed(batch.src_BS), self._embed(batch.tgt_BT), tgt_mask=causal_TT, tgt_is_causal=True,
            src_key_padding_mask=padding_BS, memory_key_padding_mask=padding_BS,
        )  # fmt: skip
        return F.linear(hidden, self.embedding.weight)

    def _embed(self, tokens: Tensor) -> Tensor:
        scale = math.sqrt(self.embedding.embedding_dim)
        return self.dropout(self.embedding(tokens) * scale + self.positions[: tokens.shape[1]])


class HuggingFaceMarian(nn.Module):
    """transformers' MarianMTModel with scaled dot-product attention."""

    def __init__(self, config: EncoderDecoderConfig, vocab_size: int) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=vocab_size,
                d_model=config.d_model,
                encoder_layers=config.encoder_layers,
                decoder_layers=config.decoder_layers,
                encoder_attention_heads=config.num_heads,
                decoder_attention_heads=config.num_heads,
                encoder_ffn_dim=config.d_ff,
                decoder_ffn_dim=config.d_ff,
                dropout=config.dropout,
                activation_function="relu",
                scale_embedding=True,
                share_encoder_decoder_embeddings=True,
                max_position_embeddings=1024,
                pad_token_id=PAD,
                bos_token_id=BOS,
                eos_token_id=EOS,
                decoder_start_token_id=BOS,
                attn_implementation="sdpa",
            )
        )

    def train(self, mode: bool = True) -> Self:
        """Set the layers to training, but without LayerDrop, which draws a random number for each layer.

        The flag that disables it also disables dropout on the embeddings, which is to the peer's advantage.
        """
        super().train(mode)
        for stack in (self.model.model.encoder, self.model.model.decoder):
            stack.training = False
        return self

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Logits (B, T, V)."""
        return self.project(self.hidden(batch))

    def hidden(self, batch: PaddedBatch) -> Tensor:
        """The decoder's last layer (B, T, D)."""
        mask_BS = (batch.src_BS != PAD).long()
        return self.model.model(
            input_ids=batch.src_BS, attention_mask=mask_BS, decoder_input_ids=batch.tgt_BT, use_cache=False
        ).last_hidden_state

    def project(self, hidden_BTD: Tensor) -> Tensor:
        """Logits (B, T, V) of these hidden vectors."""
        return self.model.lm_head(hidden_BTD) + self.model.final_logits_bias

    @property
    def layers(self) -> list[nn.Module]:
        """The layers of encoder and decoder."""
        return [*self.model.model.encoder.layers, *self.model.model.decoder.layers]


def peer_loss(logits_BTV: Tensor, labels_BT: Tensor, smoothing: float) -> Tensor:
    """Smoothed cross-entropy per target token, by torch's own function."""
    return F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), ignore_index=PAD, label_smoothing=smoothing)
