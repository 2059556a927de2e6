"""Adam (section 5.3) in one pass over memory, for CUDA and gradients in half precision.

torch's fused Adam needs gradients in the precision of the weights. They would have to be converted first, and the new
weights copied back to half precision; this kernel saves these two passes over memory. It updates the
moments of `training.adam`, which checkpoints store.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.training.adam import Adam

_BLOCK = 2048


@triton.jit
def _block(blocks_C2, addresses_TA, sizes_T, ADDRESSES: tl.constexpr, BLOCK: tl.constexpr):
    """This program's tensor (a pointer to its addresses), the indices of its elements, and the size of the tensor."""
    block = tl.program_id(0)
    tensor, start = tl.load(blocks_C2 + block * 2), tl.load(blocks_C2 + block * 2 + 1)
    return addresses_TA + tensor * ADDRESSES, start + tl.arange(0, BLOCK), tl.load(sizes_T + tensor)


@triton.jit
def _pointers(address, entry, index, dtype: tl.constexpr):
    """Pointers to the elements `index` of the tensor whose address is in this entry of the table."""
    start = tl.multiple_of(tl.load(address + entry), 16)  # torch aligns the memory of tensors
    return start.to(tl.pointer_type(dtype)) + index


@triton.jit
def _square_sum(blocks_C2, addresses_TA, sizes_T, sums_C, HALF: tl.constexpr, BLOCK: tl.constexpr):
    address, index, size = _block(blocks_C2, addresses_TA, sizes_T, 5, BLOCK)
    g = tl.load(_pointers(address, 3, index, HALF), mask=index < size, other=0.0).to(tl.float32)
    tl.store(sums_C + tl.program_id(0), tl.sum(g * g, 0))


@triton.jit
def _adam(
    blocks_C2, addresses_TA, sizes_T, factor, rate, root_correction, beta1, beta2, epsilon, decays_T, uncorrected_rate,
    DECAYS: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    scale = tl.load(factor)
    if scale == 0:  # the gradients are not finite: skip the update
        return
    address, index, size = _block(blocks_C2, addresses_TA, sizes_T, 5, BLOCK)
    weights, means = _pointers(address, 0, index, tl.float32), _pointers(address, 1, index, tl.float32)
    squares, halves = _pointers(address, 2, index, tl.float32), _pointers(address, 4, index, HALF)
    g = tl.load(_pointers(address, 3, index, HALF), mask=index < size, other=0.0).to(tl.float32) * scale
    mean = beta1 * tl.load(means, mask=index < size, other=0.0) + (1 - beta1) * g
    square = beta2 * tl.load(squares, mask=index < size, other=0.0) + (1 - beta2) * g * g
    weight = tl.load(weights, mask=index < size, other=0.0)
    if DECAYS:
        weight *= 1 - uncorrected_rate * tl.load(decays_T + tl.load(blocks_C2 + tl.program_id(0) * 2))
    weight -= rate * mean / (tl.sqrt(square) * root_correction + epsilon)
    tl.store(means, mean, mask=index < size)
    tl.store(squares, square, mask=index < size)
    tl.store(weights, weight, mask=index < size)
    tl.store(halves, weight.to(HALF), mask=index < size)


class FusedAdam:
    """Updates the weights and moments of `optimizer` with the gradients of `halves`, its weights in half precision.

    `weights` are the weights of `halves`, in the same order. The groups of the optimizer may differ in their weight
    decay, which is decoupled from the gradients.
    """

    def __init__(self, optimizer: Adam, halves: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
        device, decays = halves[0].device, [optimizer.decay_of(weight) for weight in weights]
        self._beta1, self._beta2, self._epsilon = optimizer.beta1, optimizer.beta2, optimizer.epsilon
        self._decays, self._decays_T = any(decays), torch.tensor(decays, device=device)
        addresses = [
            [x.data_ptr() for x in (weight, *optimizer.moments[weight].values(), _grad(half), half)]
            for weight, half in zip(weights, halves, strict=True)
        ]
        blocks = [(number, start) for number, half in enumerate(halves) for start in range(0, half.numel(), _BLOCK)]
        self._tables = (
            torch.tensor(blocks, dtype=torch.int32, device=device),
            torch.tensor(addresses, dtype=torch.int64, device=device),
            torch.tensor([half.numel() for half in halves], dtype=torch.int32, device=device),
        )
        self._sums_C = torch.empty(len(blocks), device=device)
        assert halves[0].dtype in (torch.bfloat16, torch.float32), "the kernel supports no other type"
        self._sizes = {"HALF": tl.bfloat16 if halves[0].dtype == torch.bfloat16 else tl.float32, "BLOCK": _BLOCK}

    def step(self, number: int, rate: float, scale: float, clip_norm: float) -> Tensor:
        """Apply update `number`, counted from 1, with the gradients times `scale`; returns their norm.

        If the norm is not finite, the weights stay unchanged.
        """
        grid = (len(self._sums_C),)
        _square_sum[grid](*self._tables, self._sums_C, **self._sizes)
        norm = self._sums_C.sum().sqrt() * scale
        factor = (clip_norm / (norm + 1e-6)).clamp(max=1.0) * scale if clip_norm else torch.full_like(norm, scale)
        factor = torch.where(norm.isfinite(), factor, 0.0)
        correction1, correction2 = 1 - self._beta1**number, 1 - self._beta2**number
        _adam[grid](
            *self._tables, factor, rate / correction1, correction2**-0.5, self._beta1, self._beta2, self._epsilon,
            self._decays_T, rate, DECAYS=self._decays, **self._sizes,
        )  # fmt: skip
        return norm


def _grad(half: Tensor) -> Tensor:
    assert half.grad is not None
    assert half.grad.is_contiguous()
    return half.grad
