"""R-Drop (Liang et al., 2021): two passes with different dropout should predict the same distributions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.nn.loss import capped_terms, chunked
from transduce.tokenizers.tokenizer import PAD

_CPU_CHUNK, _GPU_CHUNK = 1 << 22, 1 << 26
"""Logits of one pass computed at once, on a CPU and on a GPU."""


def symmetric_kl(
    first_LD: Tensor, second_LD: Tensor, labels_L: Tensor, weight_VD: Tensor, cap: float | None = None
) -> Tensor:
    """KL(p || q) + KL(q || p) of the distributions of two passes, summed over the labels that are not PAD."""
    divergence: Tensor = _SymmetricKL.apply(first_LD, second_LD, weight_VD, labels_L, cap)  # type: ignore[no-untyped-call]
    return divergence


class _SymmetricKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, first_LD: Tensor, second_LD: Tensor, weight_VD: Tensor, labels_L: Tensor, cap: float | None
    ) -> Tensor:
        at_once = _CPU_CHUNK if first_LD.device.type == "cpu" else _GPU_CHUNK
        rows = max(1, at_once // len(weight_VD))
        terms = capped_terms(_terms, cap)
        total, grads, grad_weight_VD = chunked([first_LD, second_LD], weight_VD, labels_L, rows, terms)
        ctx.save_for_backward(*grads, grad_weight_VD)
        return total

    @staticmethod
    def backward(ctx: Any, grad_divergence: Tensor) -> Any:
        grads = ctx.saved_tensors
        return *torch._foreach_mul(grads, grad_divergence.to(grads[0].dtype)), None, None


def _terms(first: Tensor, second: Tensor, labels: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    """The sum of the divergences (p - q)(log p - log q), and its gradients for both logits."""
    wide = torch.promote_types(first.dtype, torch.float32)
    log_p, log_q = (logits.to(wide).log_softmax(dim=1) for logits in (first, second))
    p, q, gap = log_p.exp(), log_q.exp(), log_p - log_q
    counts = (labels != PAD)[:, None]
    p_to_q, q_to_p = (p * gap).sum(dim=1, keepdim=True), -(q * gap).sum(dim=1, keepdim=True)
    grad_p = (p * (gap - p_to_q) + p - q) * counts
    grad_q = (q * (-gap - q_to_p) + q - p) * counts
    return ((p_to_q + q_to_p) * counts).sum(), [grad_p.to(first.dtype), grad_q.to(first.dtype)]
