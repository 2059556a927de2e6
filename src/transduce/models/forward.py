"""The forward pass of the paper's encoder-decoder in numpy and float32, for outputs that are given.

It is the definition of `encoder_decoder.py` for the models that the native engine runs, whose search is in C. Sentences
are padded to the longest.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transduce.models.arrays import Array, Arrays, Floats, Int8Matrix, fixed_positions
from transduce.models.config import EncoderDecoderConfig
from transduce.text.tokenizer import BOS, EOS, PAD

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_LOGITS = 1 << 24
"""Logits in memory at the same time."""


class ForwardPass:
    """The weights of a model in float32, and the function that they define."""

    def __init__(self, config: EncoderDecoderConfig, weights: Arrays) -> None:
        self._config, self._weights = config, weights
        self._floats: dict[str, Floats] = {}
        self._embedding_VD = weights["embedding.weight_VD"]
        own = config.source_vocab_size is not None
        self._source_embedding_VD = weights["source_weight_VD"] if own else self._embedding_VD

    def hidden(self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """The hidden vectors (B, T, D) that predict each output and its end marker, and the attention (B, T, S).

        The attention over the source tokens and end marker is the mean over the heads of the layer that aligns.
        """
        source_BS, real_BS = _padded([[*source, EOS] for source in sources])
        output_BT, _ = _padded([[BOS, *output] for output in outputs])
        memory_BSD = self._encode(source_BS, real_BS)
        x_BTD = self._embed(output_BT, self._embedding_VD)
        causal_1TT = np.tri(output_BT.shape[1], dtype=np.bool_)[None]
        attention_BTS = np.empty(0, np.float32)
        for number in range(self._config.decoder_layers):
            layer = f"decoder.{number}"
            normed_BTD = self._norm_before(x_BTD, f"{layer}.residuals.0")
            y_BTD = self._self_attention(f"{layer}.self_attention", normed_BTD, causal_1TT)
            x_BTD = self._norm_after(x_BTD + y_BTD, f"{layer}.residuals.0")
            normed_BTD = self._norm_before(x_BTD, f"{layer}.residuals.1")
            y_BTD, weights_BHTS = self._cross_attention(f"{layer}.cross_attention", normed_BTD, memory_BSD, real_BS)
            x_BTD = self._norm_after(x_BTD + y_BTD, f"{layer}.residuals.1")
            x_BTD = self._feed_forward(layer, x_BTD, f"{layer}.residuals.2")
            if number == self._config.alignment_layer:
                attention_BTS = weights_BHTS.mean(axis=1)
        return self._final_norm("decoder_norm", x_BTD), attention_BTS

    def predictions(self, hidden_LD: Floats, label_L: Ids) -> tuple[Floats, Floats]:
        """The log-probability of each label, and the entropy of each distribution over the vocabulary."""
        weight_VD, log_probs, entropies = self._matrix("embedding.weight_VD"), [], []
        rows = max(1, _LOGITS // len(weight_VD))
        for start in range(0, len(hidden_LD), rows):
            logits_RV = hidden_LD[start : start + rows] @ weight_VD.T
            if self._config.output_bias:
                logits_RV += self._matrix("output.bias_V")
            logits_RV -= logits_RV.max(axis=1, keepdims=True)
            p_RV = np.exp(logits_RV)
            total_R = p_RV.sum(axis=1)
            log_total_R = np.log(total_R)
            label_R = label_L[start : start + rows]
            log_probs.append(logits_RV[np.arange(len(label_R)), label_R] - log_total_R)
            entropies.append(log_total_R - (p_RV * logits_RV).sum(axis=1) / total_R)
        return np.concatenate(log_probs), np.concatenate(entropies)

    def _encode(self, source_BS: Ids, real_BS: Mask) -> Floats:
        x_BSD = self._embed(source_BS, self._source_embedding_VD)
        for number in range(self._config.encoder_layers):
            layer = f"encoder.{number}"
            normed_BSD = self._norm_before(x_BSD, f"{layer}.residuals.0")
            y_BSD = self._self_attention(f"{layer}.self_attention", normed_BSD, real_BS[:, None, :])
            x_BSD = self._norm_after(x_BSD + y_BSD, f"{layer}.residuals.0")
            x_BSD = self._feed_forward(layer, x_BSD, f"{layer}.residuals.1")
        return self._final_norm("encoder_norm", x_BSD)

    def _embed(self, token_BT: Ids, embedding: Array) -> Floats:
        (B, T), D = token_BT.shape, self._config.d_model
        ids_N = token_BT.reshape(-1)
        x_ND = embedding.rows(ids_N) if isinstance(embedding, Int8Matrix) else embedding[ids_N]
        kind = self._config.positions
        learned_TD = self._matrix("embedding.positions.table_TD")[:T] if kind == "learned" else None
        positions_TD = fixed_positions(kind, T, D) if learned_TD is None else learned_TD
        return x_ND.reshape(B, T, D) * np.float32(math.sqrt(D)) + positions_TD

    def _self_attention(self, name: str, x_BTD: Floats, mask_BTT: Mask) -> Floats:
        heads, (d_k, d_v) = self._config.num_heads, self._config.head_widths
        q, k, v = np.split(self._linear(f"{name}.qkv", x_BTD), [heads * d_k, 2 * heads * d_k], axis=-1)
        o_BTD, _ = _attend(self._heads(q, d_k), self._heads(k, d_k), self._heads(v, d_v), mask_BTT)
        return self._linear(f"{name}.out", o_BTD)

    def _cross_attention(self, name: str, x_BTD: Floats, memory_BSD: Floats, real_BS: Mask) -> tuple[Floats, Floats]:
        heads, (d_k, d_v) = self._config.num_heads, self._config.head_widths
        q_BHTK = self._heads(self._linear(f"{name}.q", x_BTD), d_k)
        k, v = np.split(self._linear(f"{name}.kv", memory_BSD), [heads * d_k], axis=-1)
        o_BTD, weights_BHTS = _attend(q_BHTK, self._heads(k, d_k), self._heads(v, d_v), real_BS[:, None, :])
        return self._linear(f"{name}.out", o_BTD), weights_BHTS

    def _heads(self, x_BTD: Floats, width: int) -> Floats:
        return x_BTD.reshape(*x_BTD.shape[:2], self._config.num_heads, width).transpose(0, 2, 1, 3)

    def _feed_forward(self, layer: str, x_BTD: Floats, residual: str) -> Floats:
        inner_BTF = self._linear(f"{layer}.feed_forward.inner", self._norm_before(x_BTD, residual))
        if self._config.activation == "swish":
            # At -87, the result is 0 in float32; below, the exponential would overflow.
            inner_BTF /= 1 + np.exp(-np.maximum(inner_BTF, np.float32(-87)))
        else:
            np.maximum(inner_BTF, 0, out=inner_BTF)
        y_BTD = self._linear(f"{layer}.feed_forward.outer", inner_BTF)
        return self._norm_after(x_BTD + y_BTD, residual)

    def _norm_before(self, x_BTD: Floats, residual: str) -> Floats:
        return self._norm(f"{residual}.norm", x_BTD) if self._config.norm == "pre" else x_BTD

    def _norm_after(self, x_BTD: Floats, residual: str) -> Floats:
        return self._norm(f"{residual}.norm", x_BTD) if self._config.norm == "post" else x_BTD

    def _final_norm(self, name: str, x_BTD: Floats) -> Floats:
        return self._norm(name, x_BTD) if self._config.norm == "pre" else x_BTD

    def _norm(self, name: str, x_BTD: Floats) -> Floats:
        centred_BTD = x_BTD - x_BTD.mean(axis=-1, keepdims=True)
        variance_BT1 = np.square(centred_BTD).mean(axis=-1, keepdims=True)
        normed_BTD = centred_BTD / np.sqrt(variance_BT1 + np.float32(self._config.norm_epsilon))
        return normed_BTD * self._matrix(f"{name}.weight") + self._matrix(f"{name}.bias")

    def _linear(self, name: str, x_BTD: Floats) -> Floats:
        return x_BTD @ self._matrix(f"{name}.weight").T + self._matrix(f"{name}.bias")

    def _matrix(self, name: str) -> Floats:
        """Weights in float32, kept in memory from their first use."""
        if name not in self._floats:
            weights = self._weights[name]
            self._floats[name] = weights.rows() if isinstance(weights, Int8Matrix) else weights
        return self._floats[name]


def _attend(q_BHTK: Floats, k_BHSK: Floats, v_BHSK: Floats, mask_BTS: Mask) -> tuple[Floats, Floats]:
    """The outputs of the heads, concatenated, and the attention weights (B, H, T, S)."""
    scores_BHTS = q_BHTK @ k_BHSK.transpose(0, 1, 3, 2) * np.float32(1 / math.sqrt(q_BHTK.shape[-1]))
    scores_BHTS = np.where(mask_BTS[:, None], scores_BHTS, np.float32(-np.inf))
    scores_BHTS -= scores_BHTS.max(axis=-1, keepdims=True)
    weights_BHTS = np.exp(scores_BHTS, out=scores_BHTS)
    weights_BHTS /= weights_BHTS.sum(axis=-1, keepdims=True)
    o_BTHK = (weights_BHTS @ v_BHSK).transpose(0, 2, 1, 3)
    return o_BTHK.reshape(*o_BTHK.shape[:2], -1), weights_BHTS


def _padded(sentences: Sequence[Sequence[int]]) -> tuple[Ids, Mask]:
    """The ids (B, T), padded at the end, and which of them are real."""
    lengths_B = np.array([len(sentence) for sentence in sentences])
    real_BT = np.arange(lengths_B.max())[None] < lengths_B[:, None]
    ids_BT = np.full(real_BT.shape, PAD, np.int64)
    ids_BT[real_BT] = np.fromiter((token for sentence in sentences for token in sentence), np.int64)
    return ids_BT, real_BT
