"""The Transformer of the paper: an encoder for the source, a decoder for the target (section 3, figure 1)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.data.batch import Batch, Stream
from transduce.models.config import EncoderDecoderConfig as EncoderDecoderConfig
from transduce.models.transformer import (
    OutputProjection,
    Transformer,
    initialize,
    layer_config,
    make_embedding,
    make_final_norm,
    make_front_end,
    make_rotary,
)
from transduce.nn.cache import KVCache, SourceKV, TensorKVCache
from transduce.nn.embedding import Embedding, token_vectors
from transduce.nn.layers import DecoderLayer, EncoderLayer
from transduce.nn.multi_head_attention import CrossAttention
from transduce.nn.positions import RelativeBias
from transduce.nn.segments import Segments
from transduce.tokenizers.tokenizer import BOS, EOS


@dataclass
class DecoderState:
    """The state of incremental decoding. The rows of a sentence are adjacent; all sentences have the same number."""

    caches: list[TensorKVCache]
    """One for each decoder layer."""
    position: int
    """Number of tokens processed so far."""
    tag_R: Tensor | None = None
    """The tag of each row that the decoder reads after BOS, if it does."""


class EncoderDecoder(Transformer):
    """The Transformer. Training calls `forward`; search uses `start`, `step` and `reorder`."""

    config: EncoderDecoderConfig

    def __init__(self, config: EncoderDecoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding = make_embedding(config, vocab_size)
        if config.zero_start:
            self.embedding.fix_at_zero(BOS)
        self.source_embedding: Any = None
        """The input of the encoder, if it differs from that of the decoder: an `Embedding`, or a front end."""
        if config.source != "text":
            self.source_embedding = make_front_end(config.source, config)
        elif not config.share_positions:
            self.source_embedding = make_embedding(config, None)
        self.source_weight_VD: nn.Parameter | None = None
        """The token vectors of the source, if it has a vocabulary of its own."""
        if config.source_vocab_size is not None:
            self.source_weight_VD = token_vectors(config.source_vocab_size, config.d_model, config.embedding)
        self.rotary = make_rotary(config)
        layer = layer_config(config, self.rotary)
        self.encoder = nn.ModuleList(EncoderLayer(layer) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(layer) for _ in range(config.decoder_layers))
        initialize(config, self.encoder, sublayers=2)
        initialize(config, self.decoder, sublayers=3)
        self.encoder_norm, self.decoder_norm = make_final_norm(config), make_final_norm(config)
        self.encoder_relative, self.decoder_relative = (
            RelativeBias(
                config.num_heads, causal=causal, buckets=config.relative_buckets, distant=config.relative_distance
            )
            if config.positions == "relative"
            else None
            for causal in (False, True)
        )
        self.output = OutputProjection(config, vocab_size)

    def forward(self, batch: Batch) -> Tensor:
        """See `Model`: the decoder's output for the stream `tgt`, given the stream `src`."""
        src, tgt, label_M = batch["src"], batch["tgt"], None
        if self.config.decoder_tag:
            tags_B, src = take_tags(src)
            tgt, label_M = insert_tags(tgt, tags_B)
        memory_ND, memory_segments = self.encode(src)
        self.reserve(tgt.segments.longest)
        x_MD = self.embedding(tgt.ids_N, tgt.segments.position_N)
        score_bias_BHTS = self.decoder_relative(tgt.segments) if self.decoder_relative else None
        for layer in self.decoder:
            x_MD = layer(x_MD, tgt.segments, memory_ND, memory_segments, score_bias_BHTS)
        hidden_MD = self.decoder_norm(x_MD)
        hidden_MD = hidden_MD if label_M is None else hidden_MD[label_M]
        return hidden_MD if batch.positions_L is None else hidden_MD[batch.positions_L]

    def encode(self, src: Stream) -> tuple[Tensor, Segments]:
        """The encoder's output (N, D) and its segments, which for text are those of the source, without tags if the
        decoder reads them."""
        x_ND, segments = self._read_source(src)
        score_bias_BHTS = self.encoder_relative(segments) if self.encoder_relative else None
        for layer in self.encoder:
            x_ND = layer(x_ND, segments, score_bias_BHTS)
        return self.encoder_norm(x_ND), segments

    def _read_source(self, src: Stream) -> tuple[Tensor, Segments]:
        if self.config.source != "text":
            return self.source_embedding(src.ids_N, src.segments)
        self.reserve(src.segments.longest)
        embedding: Embedding = self.embedding if self.source_embedding is None else self.source_embedding
        weight_VD = self.embedding.weight_VD if self.source_weight_VD is None else self.source_weight_VD
        return embedding.embed(src.ids_N, src.segments.position_N, weight_VD), src.segments

    def start(self, src: Stream) -> DecoderState:
        """Encode the sources; the state has one row for each."""
        tag_R = None
        if self.config.decoder_tag:
            tag_R, src = take_tags(src)
        memory_ND, segments = self.encode(src)
        layout, caches = segments.layout, []
        mask_B11S = layout.real_BT[:, None, None, :]
        for layer in self.decoder_layers():
            k_NHK, v_NHK = layer.cross_attention.project_memory(memory_ND)
            k_BHSK, v_BHSK = (layout.pad(x).transpose(1, 2).contiguous() for x in (k_NHK, v_NHK))
            caches.append(TensorKVCache.empty(SourceKV(k_BHSK, v_BHSK, mask_B11S)))
        return DecoderState(caches, 0, tag_R)

    def step(self, token_R: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Process one token per row; returns the logits (R, V) of the next token, and the new state."""
        self.reserve(state.position + 1 + (state.tag_R is not None))
        hidden_RD = self.decode(token_R, torch.full_like(token_R, state.position), state.caches)
        state.position += 1
        if state.tag_R is not None:  # after BOS, the decoder reads the tag
            hidden_RD = self.decode(state.tag_R, torch.full_like(token_R, state.position), state.caches)
            state.position, state.tag_R = state.position + 1, None
        return self.logits(hidden_RD), state

    def decode(self, token_R: Tensor, position_R: Tensor, caches: Sequence[KVCache]) -> Tensor:
        """The hidden vectors (R, D) of one new token in each row, given the KV cache of every layer."""
        if self.config.decoder_tag:  # as in fairseq, outputs start with the end marker
            token_R = torch.where(position_R == 0, EOS, token_R)
        x_RD = self.embedding(token_R, position_R)
        score_bias_RHT = None
        if self.decoder_relative:  # search advances all rows together
            score_bias_RHT = self.decoder_relative.of_queries(position_R[:1], int(position_R[0]) + 1)[:, :, 0]
        for layer, cache in zip(self.decoder_layers(), caches, strict=True):
            x_RD = layer.step(x_RD, position_R, cache, score_bias_RHT)
        return self.decoder_norm(x_RD)

    def reorder(self, state: DecoderState, index_BW: Tensor) -> DecoderState:
        """The state whose sentence b has the old rows index_BW[b]; sentences may be removed, in order."""
        for cache in state.caches:
            cache.reorder(index_BW)
        if state.tag_R is not None:
            state.tag_R = state.tag_R.index_select(0, index_BW.flatten())
        return state

    @property
    def longest(self) -> int | None:
        return self.config.longest

    @property
    def captures(self) -> bool:
        """See `Model`: not if the shapes depend on the batch: frames of sound, tags, attention on a padded grid."""
        return self.config.source != "audio" and not self.config.decoder_tag and self.config.packs_attention

    def layers(self) -> Iterable[nn.Module]:
        return (*self.encoder, *self.decoder)

    @property
    def alignment_attention(self) -> CrossAttention:
        return list(self.decoder_layers())[self.config.alignment_layer].cross_attention

    def pair_weights(self, weights_BHTS: Tensor) -> Tensor:
        """See `Model`: without the row of BOS, before the tag, and with a column of zeros for the tag."""
        return F.pad(weights_BHTS[:, :, 1:], (1, 0)) if self.config.decoder_tag else weights_BHTS

    def decoder_layers(self) -> Iterator[DecoderLayer]:
        return cast(Iterator[DecoderLayer], iter(self.decoder))


def take_tags(src: Stream) -> tuple[Tensor, Stream]:
    """The first token (B) of every segment, and the stream of the others."""
    segments, B = src.segments, len(src.segments)
    number_B1 = torch.arange(B + 1, device=segments.offsets_B1.device, dtype=torch.int32)
    rest = Segments(segments.offsets_B1 - number_B1, segments.longest - 1, segments.tokens - B)
    token_M = torch.arange(rest.tokens, device=segments.offsets_B1.device) + rest.segment_N + 1
    return src.ids_N[segments.offsets_B1[:-1].long()].long(), Stream(src.ids_N[token_M], rest)


def insert_tags(tgt: Stream, tags_B: Tensor) -> tuple[Stream, Tensor]:
    """The stream with EOS and a tag in place of BOS in every segment, and the places of all tokens but the first."""
    segments, B = tgt.segments, len(tgt.segments)
    number_B1 = torch.arange(B + 1, device=segments.offsets_B1.device, dtype=torch.int32)
    tagged = Segments(segments.offsets_B1 + number_B1, segments.longest + 1, segments.tokens + B)
    before_M = torch.arange(tagged.tokens, device=segments.offsets_B1.device) - tagged.segment_N
    ids_M = tgt.ids_N[before_M - (tagged.position_N > 0).long()]
    ids_M = torch.where(tagged.position_N == 0, EOS, ids_M)
    ids_M = torch.where(tagged.position_N == 1, tags_B[tagged.segment_N.long()].to(ids_M.dtype), ids_M)
    label_N = torch.arange(segments.tokens, device=segments.offsets_B1.device) + segments.segment_N + 1
    return Stream(ids_M, tagged), label_N
