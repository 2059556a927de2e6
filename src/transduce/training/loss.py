"""Label-smoothed cross-entropy over the vocabulary (section 5.4), joined with the projection that feeds it.

The logits of a whole batch would be its largest tensor by far. Here they exist for a few rows at a time: forward
computes their loss and, while they are there, their gradients.
"""

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
        V, device = len(embedding_VD), hidden_MD.device.type
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else hidden_MD.dtype
        weight_VD = embedding_VD.to(dtype)
        grad_hidden_MD = torch.empty_like(hidden_MD)
        grad_embedding_VD = torch.zeros_like(embedding_VD)
        loss, nll = torch.zeros(2, device=hidden_MD.device).unbind()
        rows = max(1, _LOGITS_AT_ONCE["cpu" if device == "cpu" else "gpu"] // V)
        for start in range(0, len(hidden_MD), rows):
            part = slice(start, start + rows)
            hidden, labels = hidden_MD[part].to(dtype), labels_M[part, None]
            counts = (labels != PAD).float()
            logits = (hidden @ weight_VD.T).float()
            probabilities = logits.softmax(dim=1)
            # log sum exp, from the largest term: softmax has a fast kernel everywhere, logsumexp has not
            normaliser = logits.amax(dim=1, keepdim=True) - probabilities.amax(dim=1, keepdim=True).log()
            label_nll = normaliser - logits.gather(1, labels)
            mean_nll = normaliser - logits.mean(dim=1, keepdim=True)
            nll += (label_nll * counts).sum()
            loss += (((1 - smoothing) * label_nll + smoothing * mean_nll) * counts).sum()
            if wants_grad:  # d loss / d logits = softmax(logits) - target distribution
                grad = probabilities.sub_(smoothing / V)
                grad.scatter_add_(1, labels, torch.full_like(counts, smoothing - 1))
                grad = grad.mul_(counts).to(dtype)
                grad_hidden_MD[part] = grad @ weight_VD
                grad_embedding_VD += grad.T @ hidden
        ctx.save_for_backward(grad_hidden_MD, grad_embedding_VD)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> Any:
        grad_hidden_MD, grad_embedding_VD = ctx.saved_tensors
        return grad_hidden_MD * grad_loss, grad_embedding_VD * grad_loss, None, None, None
