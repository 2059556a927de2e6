"""Label-smoothed cross-entropy over the vocabulary (section 5.4), joined with the projection that feeds it.

The logits of a whole batch would be its largest tensor by far. Here they exist for some rows at a time: forward
computes their loss and, while they are there, their gradients. Only where a kernel replaces half-precision logits by
their gradients in place may those rows be a whole batch.
"""

from typing import Any

import torch
from torch import Tensor

from transduce.nn import kernels
from transduce.text.tokenizer import PAD

_NEAR_A_CACHE, _FILL_A_GPU, _IN_PLACE = 1 << 22, 1 << 28, 1 << 30
"""Logits at once: on a CPU, on a GPU in float32, and on a GPU by the kernel that needs no room beside them."""


def smoothed_cross_entropy(
    hidden_MD: Tensor, labels_M: Tensor, embedding_VD: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The loss and the plain negative log-likelihood, each summed over the labels that are not PAD.

    The target distribution is (1 - smoothing) on the label plus smoothing / V on every word, the label too. The loss
    equals F.cross_entropy(hidden_MD @ embedding_VD.T, labels_M, ignore_index=PAD, label_smoothing=smoothing,
    reduction="sum"), whose logits would exist all at once.
    """
    wants_grad = torch.is_grad_enabled()
    loss, nll = _SmoothedCrossEntropy.apply(hidden_MD, embedding_VD, labels_M, smoothing, wants_grad)  # type: ignore[no-untyped-call]
    return loss, nll


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_MD: Tensor, weight_VD: Tensor, labels_M: Tensor, smoothing: float, wants_grad: bool
    ) -> Any:
        (M, _), V = hidden_MD.shape, len(weight_VD)
        if kernels.fit(hidden_MD):
            terms, at_once = _fused_terms, _IN_PLACE
        else:
            terms, at_once = _terms, _NEAR_A_CACHE if hidden_MD.device.type == "cpu" else _FILL_A_GPU
        grad_hidden_MD = torch.empty_like(hidden_MD)
        grad_weight_VD: Tensor | None = None
        sums = torch.zeros(2, device=hidden_MD.device)
        chunks = -(-M * V // at_once)
        rows = -(-M // max(1, chunks))
        for start in range(0, M, rows):
            part = slice(start, start + rows)
            logits = torch.mm(hidden_MD[part], weight_VD.T, out=_empty_rows(hidden_MD, len(labels_M[part]), V))
            chunk_sums, grad = terms(logits, labels_M[part], smoothing)
            sums += chunk_sums
            if wants_grad:
                torch.mm(grad, weight_VD, out=grad_hidden_MD[part])
                if grad_weight_VD is None:
                    grad_weight_VD = grad.T @ hidden_MD[part]
                else:
                    grad_weight_VD += grad.T @ hidden_MD[part]
        loss, nll = sums.unbind()
        ctx.save_for_backward(grad_hidden_MD, grad_weight_VD)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> Any:
        grads = ctx.saved_tensors
        return *torch._foreach_mul(grads, grad_loss.to(grads[0].dtype)), None, None, None


def _empty_rows(like: Tensor, rows: int, width: int) -> Tensor:
    """Room for logits whose rows begin at round addresses, which matrix products and kernels want."""
    return like.new_empty(rows, -(-width // 64) * 64)[:, :width]


def _terms(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sums of loss and negative log-likelihood, and d loss / d logits = softmax(logits) - target distribution."""
    wide, label = logits.to(torch.promote_types(logits.dtype, torch.float32)), labels[:, None]
    probabilities = wide.softmax(dim=1)
    # log sum exp, from the largest term: softmax has a fast kernel on every CPU, logsumexp has not
    normaliser = wide.amax(dim=1, keepdim=True) - probabilities.amax(dim=1, keepdim=True).log()
    label_nll = normaliser - wide.gather(1, label)
    mean_nll = normaliser - wide.mean(dim=1, keepdim=True)
    both = torch.cat([(1 - smoothing) * label_nll + smoothing * mean_nll, label_nll], dim=1)
    grad = probabilities.sub_(smoothing / logits.shape[1])
    grad.scatter_add_(1, label, torch.full_like(normaliser, smoothing - 1))
    counts = label != PAD
    return (both * counts).sum(dim=0), grad.mul_(counts).to(logits.dtype)


def _fused_terms(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The same in one pass over half-precision logits."""
    from transduce.nn.kernels.cross_entropy import smoothed_terms

    return smoothed_terms(logits, labels, smoothing, PAD)
