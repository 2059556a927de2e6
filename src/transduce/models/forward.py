"""The forward pass of the paper's encoder-decoder in numpy and float32, for outputs that are given.

It is the definition of `encoder_decoder.py` for the models that the native engine runs, whose search is in C. Tokens
are packed, as there; only the attention works on sentences that are padded to the longest.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transduce.models.arrays import Array, Arrays, Floats, Int8Matrix, fixed_positions
from transduce.models.config import EncoderDecoderConfig
from transduce.text.tokenizer import BOS, EOS

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
        """The hidden vectors (L, D) that predict each token and end marker of the outputs, one output after the other.

        Also the attention (B, T, S) over the source tokens and end marker: the mean over the heads of the layer that
        aligns.
        """
        target = _Layout([[BOS, *output] for output in outputs])
        source = _Layout([[*source, EOS] for source in sources])
        memory_ND, x_LD = self._encode(source), self._embed(target, self._embedding_VD)
        attention_BTS = np.empty(0, np.float32)
        causal_1TT = np.tri(target.real_BT.shape[1], dtype=np.bool_)[None]
        for number in range(self._config.decoder_layers):
            layer = f"decoder.{number}"
            normed_LD = self._norm_before(x_LD, f"{layer}.residuals.0")
            y_LD = self._decoder_cell(f"{layer}.self_attention", normed_LD, target, causal_1TT)
            x_LD = self._norm_after(x_LD + y_LD, f"{layer}.residuals.0")
            normed_LD = self._norm_before(x_LD, f"{layer}.residuals.1")
            y_LD, weights_BHTS = self._cross_attention(f"{layer}.cross_attention", normed_LD, target, memory_ND, source)
            x_LD = self._norm_after(x_LD + y_LD, f"{layer}.residuals.1")
            x_LD = self._feed_forward(layer, x_LD, f"{layer}.residuals.2")
            if number == self._config.alignment_layer:
                attention_BTS = weights_BHTS.mean(axis=1)
        return self._final_norm("decoder_norm", x_LD), attention_BTS

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

    def _encode(self, source: "_Layout") -> Floats:
        x_ND = self._embed(source, self._source_embedding_VD)
        for number in range(self._config.encoder_layers):
            layer = f"encoder.{number}"
            normed_ND = self._norm_before(x_ND, f"{layer}.residuals.0")
            y_ND = self._self_attention(f"{layer}.self_attention", normed_ND, source, source.real_BT[:, None, :])
            x_ND = self._norm_after(x_ND + y_ND, f"{layer}.residuals.0")
            x_ND = self._feed_forward(layer, x_ND, f"{layer}.residuals.1")
        return self._final_norm("encoder_norm", x_ND)

    def _embed(self, layout: "_Layout", embedding: Array) -> Floats:
        D, length = self._config.d_model, layout.real_BT.shape[1]
        x_ND = embedding.rows(layout.ids_N) if isinstance(embedding, Int8Matrix) else embedding[layout.ids_N]
        kind = self._config.positions
        learned_TD = self._matrix("embedding.positions.table_TD")[:length] if kind == "learned" else None
        positions_TD = fixed_positions(kind, length, D) if learned_TD is None else learned_TD
        return x_ND * np.float32(math.sqrt(D)) + positions_TD[layout.position_N]

    def _self_attention(self, name: str, x_ND: Floats, layout: "_Layout", mask_BTT: Mask) -> Floats:
        heads, (d_k, d_v) = self._config.num_heads, self._config.head_widths
        qkv_BTD = layout.padded(self._linear(f"{name}.qkv", x_ND))
        q, k, v = np.split(qkv_BTD, [heads * d_k, 2 * heads * d_k], axis=-1)
        o_BTD, _ = _attend(self._heads(q, d_k), self._heads(k, d_k), self._heads(v, d_v), mask_BTT)
        return self._linear(f"{name}.out", o_BTD[layout.real_BT])

    def _decoder_cell(self, name: str, x_LD: Floats, layout: "_Layout", causal_1TT: Mask) -> Floats:
        if self._config.decoder_cell == "attention":
            return self._self_attention(name, x_LD, layout, causal_1TT)
        # At -87, the gate is 1e-38; below, the exponential would overflow.
        keep_LD: Floats = np.reciprocal(1 + np.exp(-np.maximum(self._linear(f"{name}.forget", x_LD), np.float32(-87))))
        new_LD = (1 - keep_LD) * (x_LD @ self._matrix(f"{name}.input.weight").T)
        keep_BTD, state_BTD = layout.padded(keep_LD), layout.padded(new_LD)
        for t in range(1, state_BTD.shape[1]):
            state_BTD[:, t] += keep_BTD[:, t] * state_BTD[:, t - 1]
        return np.maximum(state_BTD[layout.real_BT], 0)

    def _cross_attention(
        self, name: str, x_LD: Floats, target: "_Layout", memory_ND: Floats, source: "_Layout"
    ) -> tuple[Floats, Floats]:
        heads, (d_k, d_v) = self._config.num_heads, self._config.head_widths
        q_BHTK = self._heads(target.padded(self._linear(f"{name}.q", x_LD)), d_k)
        k, v = np.split(source.padded(self._linear(f"{name}.kv", memory_ND)), [heads * d_k], axis=-1)
        o_BTD, weights_BHTS = _attend(q_BHTK, self._heads(k, d_k), self._heads(v, d_v), source.real_BT[:, None, :])
        return self._linear(f"{name}.out", o_BTD[target.real_BT]), weights_BHTS

    def _heads(self, x_BTD: Floats, width: int) -> Floats:
        return x_BTD.reshape(*x_BTD.shape[:2], self._config.num_heads, width).transpose(0, 2, 1, 3)

    def _feed_forward(self, layer: str, x_ND: Floats, residual: str) -> Floats:
        inner_NF = self._linear(f"{layer}.feed_forward.inner", self._norm_before(x_ND, residual))
        if self._config.activation == "swish":
            # At -87, the result is 0 in float32; below, the exponential would overflow.
            inner_NF /= 1 + np.exp(-np.maximum(inner_NF, np.float32(-87)))
        else:
            np.maximum(inner_NF, 0, out=inner_NF)
        y_ND = self._linear(f"{layer}.feed_forward.outer", inner_NF)
        return self._norm_after(x_ND + y_ND, residual)

    def _norm_before(self, x_ND: Floats, residual: str) -> Floats:
        return self._norm(f"{residual}.norm", x_ND) if self._config.norm == "pre" else x_ND

    def _norm_after(self, x_ND: Floats, residual: str) -> Floats:
        return self._norm(f"{residual}.norm", x_ND) if self._config.norm == "post" else x_ND

    def _final_norm(self, name: str, x_ND: Floats) -> Floats:
        return self._norm(name, x_ND) if self._config.norm == "pre" else x_ND

    def _norm(self, name: str, x_ND: Floats) -> Floats:
        centred_ND = x_ND - x_ND.mean(axis=-1, keepdims=True)
        variance_N1 = np.square(centred_ND).mean(axis=-1, keepdims=True)
        normed_ND = centred_ND / np.sqrt(variance_N1 + np.float32(self._config.norm_epsilon))
        return normed_ND * self._matrix(f"{name}.weight") + self._matrix(f"{name}.bias")

    def _linear(self, name: str, x_ND: Floats) -> Floats:
        return x_ND @ self._matrix(f"{name}.weight").T + self._matrix(f"{name}.bias")

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


class _Layout:
    """Packed sentences, and where their tokens are if they are padded to the longest."""

    def __init__(self, sentences: Sequence[Sequence[int]]) -> None:
        lengths_B = np.array([len(sentence) for sentence in sentences])
        self.ids_N = np.fromiter((token for sentence in sentences for token in sentence), np.int64)
        self.real_BT: Mask = np.arange(lengths_B.max())[None] < lengths_B[:, None]
        self.position_N = self.real_BT.nonzero()[1]

    def padded(self, x_ND: Floats) -> Floats:
        """The vectors (B, T, D) with zeros in the padding."""
        x_BTD = np.zeros((*self.real_BT.shape, x_ND.shape[-1]), np.float32)
        x_BTD[self.real_BT] = x_ND
        return x_BTD
