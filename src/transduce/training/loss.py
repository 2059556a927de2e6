"""Label-smoothed cross-entropy over the vocabulary (section 5.4), joined with the projection that feeds it.

The logits of a whole batch would be its largest tensor by far. Here they exist for a few rows at a time: forward
computes their loss and, while they are there, their gradients.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from transduce.text.tokenizer import PAD

_LOGITS_AT_ONCE = {"cpu": 1 << 22, "gpu": 1 << 28}
"""As many as stay near the cache of a CPU, or fill a GPU."""


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
        ctx: Any, hidden_MD: Tensor, embedding_VD: Tensor, labels_M: Tensor, smoothing: float, wants_grad: bool
    ) -> Any:
        (M, _), V, device = hidden_MD.shape, len(embedding_VD), hidden_MD.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_MD.dtype
        terms = _terms if device == "cpu" else _compiled_terms()
        weight_VD = embedding_VD.to(dtype)
        grad_hidden_MD = torch.empty_like(hidden_MD)
        grad_embedding_VD = torch.zeros_like(embedding_VD)
        sums = torch.zeros(2, device=hidden_MD.device)
        chunks = -(-M * V // _LOGITS_AT_ONCE["cpu" if device == "cpu" else "gpu"])
        rows = -(-M // max(1, chunks))
        for start in range(0, M, rows):
            part = slice(start, start + rows)
            hidden = hidden_MD[part].to(dtype)
            chunk_sums, grad = terms(hidden @ weight_VD.T, labels_M[part, None], smoothing)
            sums += chunk_sums
            if wants_grad:
                grad_hidden_MD[part] = grad @ weight_VD
                grad_embedding_VD += grad.T @ hidden
        loss, nll = sums.unbind()
        ctx.save_for_backward(grad_hidden_MD, grad_embedding_VD)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> Any:
        grad_hidden_MD, grad_embedding_VD = ctx.saved_tensors
        return grad_hidden_MD * grad_loss, grad_embedding_VD * grad_loss, None, None, None


def _terms(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sums of loss and negative log-likelihood, and d loss / d logits = softmax(logits) - target distribution."""
    probabilities = logits.softmax(dim=1)
    # log sum exp, from the largest term: softmax has a fast kernel on every CPU, logsumexp has not
    normaliser = logits.amax(dim=1, keepdim=True) - probabilities.amax(dim=1, keepdim=True).log()
    grad = probabilities.sub_(smoothing / logits.shape[1])
    grad.scatter_add_(1, labels, torch.full_like(normaliser, smoothing - 1))
    return _sums(logits, normaliser, labels, smoothing), grad.mul_(labels != PAD)


def _fusible_terms(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The same in a form that compiles to one pass over half-precision logits, computed in float32."""
    wide = logits.float()
    normaliser = wide.logsumexp(dim=1, keepdim=True)
    is_label = torch.arange(logits.shape[1], device=logits.device) == labels
    target = torch.where(is_label, 1 - smoothing, 0.0) + smoothing / logits.shape[1]
    grad = ((wide - normaliser).exp() - target) * (labels != PAD)
    return _sums(wide, normaliser, labels, smoothing), grad.to(logits.dtype)


def _sums(logits: Tensor, normaliser: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    label_nll = normaliser - logits.gather(1, labels)
    mean_nll = normaliser - logits.mean(dim=1, keepdim=True)
    both = torch.cat([(1 - smoothing) * label_nll + smoothing * mean_nll, label_nll], dim=1)
    return (both * (labels != PAD)).sum(dim=0)


@cache
def _compiled_terms() -> Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]:
    return torch.compile(_fusible_terms)
