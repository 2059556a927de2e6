"""Label-smoothed cross-entropy, whose gradient overwrites the logits in place, for CUDA.

One program processes one row in two passes: the first computes the softmax's denominator and the sum of the logits; the
second, while the row is still in the cache, replaces each logit by its gradient.
"""

from collections.abc import Sequence
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from transduce.fast.kernels.float8 import Float8Output, Sites, suits_float8
from transduce.nn.loss import capped_terms, chunked_loss
from transduce.tokenizers.tokenizer import PAD

_BLOCK = 2048
_LOGITS_AT_ONCE = 1 << 30


@triton.jit
def _cross_entropy(logits_MV, labels_M, terms_M2, V, stride, smoothing, PAD: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    label, logits = tl.load(labels_M + row), logits_MV + row * stride
    loss, nll = 0.0, 0.0
    if label == PAD:
        for start in range(0, V, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            tl.store(logits + columns, tl.zeros((BLOCK,), logits_MV.dtype.element_ty), mask=columns < stride)
    else:
        maximum, total, logit_sum = float("-inf"), 0.0, 0.0
        label_logit = tl.load(logits + label).to(tl.float32)
        for start in range(0, V, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            x = tl.load(logits + columns, mask=columns < stride, other=0.0).to(tl.float32)
            logit_sum += tl.sum(tl.where(columns < V, x, 0.0), 0)
            x = tl.where(columns < V, x, float("-inf"))
            new_maximum = tl.maximum(maximum, tl.max(x, 0))
            total = total * tl.exp(maximum - new_maximum) + tl.sum(tl.exp(x - new_maximum), 0)
            maximum = new_maximum
        normaliser = maximum + tl.log(total)
        for start in range(0, V, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            x = tl.load(logits + columns, mask=columns < stride, other=0.0).to(tl.float32)
            target = tl.where(columns == label, 1 - smoothing, 0.0) + smoothing / V
            grad = tl.where(columns < V, tl.exp(x - normaliser) - target, 0.0)
            tl.store(logits + columns, grad.to(logits_MV.dtype.element_ty), mask=columns < stride)
        nll = normaliser - label_logit
        loss = (1 - smoothing) * nll + smoothing * (normaliser - logit_sum / V)
    tl.store(terms_M2 + row * 2, loss)
    tl.store(terms_M2 + row * 2 + 1, nll)


def smoothed_terms(logits_MV: Tensor, labels_M: Tensor, smoothing: float, pad: int) -> tuple[Tensor, Tensor]:
    """Sums of loss and negative log-likelihood, and the gradient of the logits, which overwrites them.

    If rows are padded to an aligned width (`stride`), the padding is overwritten with zeros.
    """
    M, V = logits_MV.shape
    terms_M2 = torch.empty(M, 2, dtype=torch.float32, device=logits_MV.device)
    _cross_entropy[(M,)](
        logits_MV, labels_M, terms_M2, V, logits_MV.stride(0), smoothing,
        PAD=pad, BLOCK=min(_BLOCK, triton.next_power_of_2(V)), num_warps=4,
    )  # fmt: skip
    return terms_M2.sum(0), logits_MV


def smoothed_cross_entropy(
    hidden_LD: Tensor,
    labels_L: Tensor,
    weight_VD: Tensor,
    smoothing: float,
    cap: float | None = None,
    float8: Sites | None = None,
) -> tuple[Tensor, Tensor]:
    """See `nn.loss.smoothed_cross_entropy`; with `float8`, products are in 8 bits while gradients are computed."""
    V = len(weight_VD)
    if V % 16:  # matrix products with an odd number of rows are several times slower
        weight_VD = F.pad(weight_VD, (0, 0, 0, -V % 64))
    terms = capped_terms(partial(_terms, smoothing=smoothing, vocab_size=V), cap)
    products = Float8Output(float8) if float8 and torch.is_grad_enabled() and suits_float8(weight_VD) else None
    return chunked_loss(hidden_LD, labels_L, weight_VD, terms, _LOGITS_AT_ONCE, products)


def _terms(logits: Tensor, labels: Tensor, smoothing: float, vocab_size: int) -> tuple[Tensor, Sequence[Tensor]]:
    """See `nn.loss`; columns beyond the vocabulary get a gradient of zero."""
    sums, _ = smoothed_terms(logits[:, :vocab_size], labels, smoothing, PAD)
    return sums, [logits]
