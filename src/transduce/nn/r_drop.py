"""R-Drop (Liang et al., 2021): two passes under different dropout should predict the same words."""

from typing import Any

import torch
from torch import Tensor

from transduce.text.tokenizer import PAD

_NEAR_A_CACHE, _FILL_A_GPU = 1 << 22, 1 << 26
"""Logits of one pass at once: on a CPU, and on a GPU."""


def disagreement(first_MD: Tensor, second_MD: Tensor, labels_M: Tensor, embedding_VD: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p) of the words that two passes predict, summed over the labels that are not PAD."""
    divergence: Tensor = _Disagreement.apply(first_MD, second_MD, embedding_VD, labels_M)  # type: ignore[no-untyped-call]
    return divergence


class _Disagreement(torch.autograd.Function):
    """As in `loss.py`, logits exist for some rows at a time, and forward computes gradients while they are there."""

    @staticmethod
    def forward(ctx: Any, first_MD: Tensor, second_MD: Tensor, weight_VD: Tensor, labels_M: Tensor) -> Tensor:
        total = torch.zeros((), device=first_MD.device)
        grads = [torch.empty_like(first_MD), torch.empty_like(second_MD)]
        grad_weight_VD = torch.zeros_like(weight_VD)
        at_once = _NEAR_A_CACHE if first_MD.device.type == "cpu" else _FILL_A_GPU
        rows = max(1, at_once // len(weight_VD))
        for start in range(0, len(labels_M), rows):
            part = slice(start, start + rows)
            hidden = first_MD[part], second_MD[part]
            divergence, logit_grads = _terms(hidden[0] @ weight_VD.T, hidden[1] @ weight_VD.T, labels_M[part])
            total += divergence
            for h, grad_MD, grad in zip(hidden, grads, logit_grads, strict=True):
                torch.mm(grad, weight_VD, out=grad_MD[part])
                grad_weight_VD += grad.T @ h
        ctx.save_for_backward(*grads, grad_weight_VD)
        return total

    @staticmethod
    def backward(ctx: Any, grad_divergence: Tensor) -> Any:
        grads = ctx.saved_tensors
        return *torch._foreach_mul(grads, grad_divergence.to(grads[0].dtype)), None


def _terms(first: Tensor, second: Tensor, labels: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The sum of the divergences (p - q)(log p - log q), and its gradients for both logits."""
    wide = torch.promote_types(first.dtype, torch.float32)
    log_p, log_q = (logits.to(wide).log_softmax(dim=1) for logits in (first, second))
    p, q, gap = log_p.exp(), log_q.exp(), log_p - log_q
    counts = (labels != PAD)[:, None]
    p_to_q, q_to_p = (p * gap).sum(dim=1, keepdim=True), -(q * gap).sum(dim=1, keepdim=True)
    grad_p = (p * (gap - p_to_q) + p - q) * counts
    grad_q = (q * (-gap - q_to_p) + q - p) * counts
    return ((p_to_q + q_to_p) * counts).sum(), (grad_p.to(first.dtype), grad_q.to(first.dtype))
