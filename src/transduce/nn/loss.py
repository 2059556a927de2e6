"""Label-smoothed cross-entropy over the vocabulary (section 5.4), fused with the output projection.

The logits of an entire batch would be its largest tensor by far. `chunked` computes logits and their gradients for a
limited number of rows at a time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.nn.attention import soft_cap
from transduce.tokenizers.tokenizer import PAD

_CPU_CHUNK, _GPU_CHUNK = 1 << 22, 1 << 28
"""Logits computed at once: on a CPU (about a cache), and on a GPU."""

_ALIGNMENT = 8
"""Elements of half precision in the 16 bytes to which fast matrix products align rows."""

Terms = Callable[..., tuple[Tensor, Sequence[Tensor]]]
"""Logits of each hidden tensor, and labels, to the sums of a chunk and the gradient of each logits tensor."""


def smoothed_cross_entropy(
    hidden_LD: Tensor, labels_L: Tensor, weight_VD: Tensor, smoothing: float, cap: float | None = None
) -> tuple[Tensor, Tensor]:
    """The loss and the negative log-likelihood without smoothing, each summed over the labels that are not PAD.

    The target distribution is (1 - smoothing) on the label plus smoothing / V on every token, the label included. The
    loss equals F.cross_entropy(hidden_LD @ weight_VD.T, labels_L, ignore_index=PAD, label_smoothing=smoothing,
    reduction="sum"), which would allocate all logits at once. With `cap`, logits are bounded by it (`soft_cap`).
    """
    at_once = _CPU_CHUNK if hidden_LD.device.type == "cpu" else _GPU_CHUNK
    terms = capped_terms(partial(_terms, smoothing=smoothing), cap)
    return chunked_loss(hidden_LD, labels_L, weight_VD, terms, at_once)


class Products:
    """The three products of hidden vectors and the output matrix, for some rows at a time."""

    def logits(self, hidden_LD: Tensor, weight_VD: Tensor) -> Tensor:
        return F.linear(hidden_LD, weight_VD)

    def hidden_gradient(self, grad_LV: Tensor, weight_VD: Tensor) -> Tensor:
        return grad_LV @ weight_VD

    def weight_gradient(self, grad_LV: Tensor, hidden_LD: Tensor) -> Tensor:
        return grad_LV.T @ hidden_LD


class AlignedProducts(Products):
    """Logits whose rows are padded to aligned addresses, which fast matrix products need."""

    def logits(self, hidden_LD: Tensor, weight_VD: Tensor) -> Tensor:
        V = len(weight_VD)
        logits_LV = hidden_LD.new_empty(len(hidden_LD), -(-V // 64) * 64)[:, :V]
        return torch.mm(hidden_LD, weight_VD.T, out=logits_LV)


def chunked_loss(
    hidden_LD: Tensor,
    labels_L: Tensor,
    weight_VD: Tensor,
    terms: Terms,
    logits_at_once: int,
    products: Products | None = None,
) -> tuple[Tensor, Tensor]:
    """`smoothed_cross_entropy` by these `terms`, with at most `logits_at_once` logits in memory."""
    products = products or AlignedProducts()
    wants_grad = torch.is_grad_enabled()
    loss, nll = _ChunkedLoss.apply(hidden_LD, weight_VD, labels_L, terms, logits_at_once, products, wants_grad)  # type: ignore[no-untyped-call]
    return loss, nll


def capped_terms(terms: Terms, cap: float | None) -> Terms:
    """The terms of logits that are bounded by a cap; None leaves them as they are."""
    if cap is None:
        return terms

    def of_capped(*logits_and_labels: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        *logits, labels = logits_and_labels
        capped = [soft_cap(x, cap) for x in logits]
        slopes = [1 - (x / cap) ** 2 for x in capped]  # before the terms, which may overwrite their logits
        sums, grads = terms(*capped, labels)
        return sums, [grad * slope for grad, slope in zip(grads, slopes, strict=True)]

    return of_capped


def with_bias(hidden_LD: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> tuple[Tensor, Tensor]:
    """Hidden vectors and an output projection whose product has the bias: as one more feature, which is 1.

    The other added features are zeros, so that rows stay aligned.
    """
    if bias_V is None:
        return hidden_LD, weight_VD
    added_LE = hidden_LD.new_zeros(len(hidden_LD), _ALIGNMENT)
    added_LE[:, 0] = 1
    added_VE = F.pad(bias_V[:, None], (0, _ALIGNMENT - 1)).to(weight_VD.dtype)
    return torch.cat([hidden_LD, added_LE], dim=1), torch.cat([weight_VD, added_VE], dim=1)


def chunked(
    hiddens_LD: Sequence[Tensor],
    weight_VD: Tensor,
    labels_L: Tensor,
    rows: int,
    terms: Terms,
    *,
    products: Products | None = None,
    wants_grad: bool = True,
    trains_weight: bool = True,
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Apply `terms` to the logits of `rows` rows at a time; returns sums, and the gradients of hiddens and weight."""
    products = products or Products()
    grads_of_parts: list[list[Tensor]] = [[] for _ in hiddens_LD]
    grad_weight_VD: Tensor | None = None
    sums = torch.zeros((), device=weight_VD.device)
    for start in range(0, len(labels_L), rows):
        part = slice(start, start + rows)
        logits = [products.logits(hidden_LD[part], weight_VD) for hidden_LD in hiddens_LD]
        chunk_sums, grads = terms(*logits, labels_L[part])
        sums = sums + chunk_sums
        for hidden_LD, parts, grad in zip(hiddens_LD, grads_of_parts, grads if wants_grad else (), strict=wants_grad):
            parts.append(products.hidden_gradient(grad, weight_VD))
            if not trains_weight:
                continue
            product_VD = products.weight_gradient(grad, hidden_LD[part])
            if grad_weight_VD is None:
                # The chunks of a CPU are small, and too many of them to be summed in bfloat16.
                wide = torch.promote_types(product_VD.dtype, torch.float32)
                grad_weight_VD = product_VD.to(wide) if product_VD.device.type == "cpu" else product_VD
            else:
                grad_weight_VD += product_VD
    grads_LD = [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in grads_of_parts if parts]
    return sums, grads_LD, None if grad_weight_VD is None else grad_weight_VD.to(weight_VD.dtype)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_LD: Tensor,
        weight_VD: Tensor,
        labels_L: Tensor,
        terms: Terms,
        logits_at_once: int,
        products: Products,
        wants_grad: bool,
    ) -> Any:
        L, V = len(labels_L), len(weight_VD)
        rows = -(-L // max(1, -(-L * V // logits_at_once)))
        sums, grads_LD, grad_weight_VD = chunked(
            [hidden_LD], weight_VD, labels_L, rows, terms, products=products, wants_grad=wants_grad,
            trains_weight=ctx.needs_input_grad[1],
        )  # fmt: skip
        loss, nll = sums.unbind()
        ctx.save_for_backward(*grads_LD, *([] if grad_weight_VD is None else [grad_weight_VD]))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> Any:
        grads = ctx.saved_tensors
        grad_hidden_LD, *grad_weight_VD = torch._foreach_mul(grads, grad_loss.to(grads[0].dtype))
        return grad_hidden_LD, grad_weight_VD[0] if grad_weight_VD else None, None, None, None, None, None


def _terms(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Sequence[Tensor]]:
    """Sums of loss and negative log-likelihood, and d loss / d logits = softmax(logits) - target distribution."""
    wide, label = logits.to(torch.promote_types(logits.dtype, torch.float32)), labels[:, None]
    probabilities = wide.softmax(dim=1)
    # log sum exp, from the largest term: softmax has a fast kernel on every CPU, logsumexp does not.
    normaliser = wide.amax(dim=1, keepdim=True) - probabilities.amax(dim=1, keepdim=True).log()
    label_nll = normaliser - wide.gather(1, label)
    mean_nll = normaliser - wide.mean(dim=1, keepdim=True)
    both = torch.cat([(1 - smoothing) * label_nll + smoothing * mean_nll, label_nll], dim=1)
    grad = probabilities.sub_(smoothing / logits.shape[1])
    grad.scatter_add_(1, label, torch.full_like(normaliser, smoothing - 1))
    counts = label != PAD
    return (both * counts).sum(dim=0), [grad.mul_(counts).to(logits.dtype)]
