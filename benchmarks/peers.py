"""The peers of the training benchmarks: the same Transformer, as others build it, on padded batches."""

import math
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn
from torch.nn import functional as F

from transduce.data.batch import Batch
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.nn.positions import sinusoids
from transduce.nn.segments import PaddedLayout
from transduce.text.tokenizer import BOS, EOS, PAD


@dataclass(frozen=True)
class PaddedBatch:
    """The sentences of a packed batch as peers want them."""

    src_BS: Tensor
    tgt_BT: Tensor
    labels_BT: Tensor
    target_tokens: int


def padded(batch: Batch) -> PaddedBatch:
    """The same sentences, one a row, filled up with PAD."""

    def grid(x_N: Tensor, layout: PaddedLayout) -> Tensor:
        return (
            x_N.new_full((layout.real_BT.numel(),), PAD).index_copy(0, layout.cell_of_token_N, x_N).view(layout.shape)
        )

    src, tgt = batch.src_segments.layout, batch.tgt_segments.layout
    return PaddedBatch(grid(batch.src_N, src), grid(batch.tgt_M, tgt), grid(batch.labels_M, tgt), batch.target_tokens)


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with the paper's embeddings around it."""

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
        """Train the layers, but without LayerDrop and its toss of a coin for each layer.

        The flag that says so also switches off dropout on the embeddings, which is to the peer's advantage.
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
        """Logits (B, T, V) of it."""
        return self.model.lm_head(hidden_BTD) + self.model.final_logits_bias

    @property
    def layers(self) -> list[nn.Module]:
        """Of encoder and decoder."""
        return [*self.model.model.encoder.layers, *self.model.model.decoder.layers]


def peer_loss(logits_BTV: Tensor, labels_BT: Tensor, smoothing: float) -> Tensor:
    """Smoothed cross-entropy per target token, by torch's own function."""
    return F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), ignore_index=PAD, label_smoothing=smoothing)
