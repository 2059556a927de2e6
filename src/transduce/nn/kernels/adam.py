"""Adam (section 5.3) in one pass over memory, for CUDA, where a half-precision copy of the weights computes gradients.

torch's fused Adam wants gradients as wide as the weights. So they would be widened first, and the new weights copied
back to half precision: two passes over memory that this kernel does on the way. It works on the state of a
`torch.optim.Adam`, which is what a checkpoint keeps.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048
_MOMENTS = ("exp_avg", "exp_avg_sq")


@triton.jit
def _place(blocks_C2, addresses_TA, sizes_T, ADDRESSES: tl.constexpr, BLOCK: tl.constexpr):
    """The addresses of the tensor this program works on, which of its numbers it owns, and how many there are."""
    block = tl.program_id(0)
    tensor, start = tl.load(blocks_C2 + block * 2), tl.load(blocks_C2 + block * 2 + 1)
    return addresses_TA + tensor * ADDRESSES, start + tl.arange(0, BLOCK), tl.load(sizes_T + tensor)


@triton.jit
def _at(address, number, here, dtype: tl.constexpr):
    """Pointers to the numbers `here` of the tensor whose address is entry `number`."""
    start = tl.multiple_of(tl.load(address + number), 16)  # memory of tensors begins at round addresses
    return start.to(tl.pointer_type(dtype)) + here


@triton.jit
def _square_sum(blocks_C2, addresses_TA, sizes_T, shares_C, HALF: tl.constexpr, BLOCK: tl.constexpr):
    address, here, size = _place(blocks_C2, addresses_TA, sizes_T, 5, BLOCK)
    g = tl.load(_at(address, 3, here, HALF), mask=here < size, other=0.0).to(tl.float32)
    tl.store(shares_C + tl.program_id(0), tl.sum(g * g, 0))


@triton.jit
def _adam(
    blocks_C2, addresses_TA, sizes_T, factor, rate, root_correction, beta1, beta2, epsilon,
    HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    scale = tl.load(factor)
    if scale == 0:  # the gradients are not finite: everything stays as it is
        return
    address, here, size = _place(blocks_C2, addresses_TA, sizes_T, 5, BLOCK)
    weights, means = _at(address, 0, here, tl.float32), _at(address, 1, here, tl.float32)
    squares, halves = _at(address, 2, here, tl.float32), _at(address, 4, here, HALF)
    g = tl.load(_at(address, 3, here, HALF), mask=here < size, other=0.0).to(tl.float32) * scale
    mean = beta1 * tl.load(means, mask=here < size, other=0.0) + (1 - beta1) * g
    square = beta2 * tl.load(squares, mask=here < size, other=0.0) + (1 - beta2) * g * g
    weight = tl.load(weights, mask=here < size, other=0.0)
    weight -= rate * mean / (tl.sqrt(square) * root_correction + epsilon)
    tl.store(means, mean, mask=here < size)
    tl.store(squares, square, mask=here < size)
    tl.store(weights, weight, mask=here < size)
    tl.store(halves, weight.to(HALF), mask=here < size)


class FusedAdam:
    """The updates of `optimizer`, which has its moments, from the gradients of `halves`, the copies of its weights."""

    def __init__(self, optimizer: torch.optim.Adam, halves: Sequence[Tensor]) -> None:
        (group,) = optimizer.param_groups
        weights, device = group["params"], halves[0].device
        (self._beta1, self._beta2), self._epsilon = group["betas"], group["eps"]
        moments = ([optimizer.state[weight][name] for name in _MOMENTS] for weight in weights)
        addresses = [
            [x.data_ptr() for x in (weight, *both, _grad(half), half)]
            for weight, both, half in zip(weights, moments, halves, strict=True)
        ]
        blocks = [(number, start) for number, half in enumerate(halves) for start in range(0, half.numel(), _BLOCK)]
        self._tables = (
            torch.tensor(blocks, dtype=torch.int32, device=device),
            torch.tensor(addresses, dtype=torch.int64, device=device),
            torch.tensor([half.numel() for half in halves], dtype=torch.int32, device=device),
        )
        self._shares_C = torch.empty(len(blocks), device=device)
        assert halves[0].dtype in (torch.bfloat16, torch.float32), "the kernel reads no other type"
        self._sizes = {"HALF": tl.bfloat16 if halves[0].dtype == torch.bfloat16 else tl.float32, "BLOCK": _BLOCK}

    def step(self, number: int, rate: float, scale: float, clip_norm: float) -> Tensor:
        """Update number `number`, counted from 1, with gradients times `scale`; returns their norm.

        Where that is not a finite number, the weights stay as they are.
        """
        grid = (len(self._shares_C),)
        _square_sum[grid](*self._tables, self._shares_C, **self._sizes)
        norm = self._shares_C.sum().sqrt() * scale
        factor = (clip_norm / (norm + 1e-6)).clamp(max=1.0) * scale if clip_norm else torch.full_like(norm, scale)
        factor = torch.where(norm.isfinite(), factor, 0.0)
        correction1, correction2 = 1 - self._beta1**number, 1 - self._beta2**number
        _adam[grid](
            *self._tables, factor, rate / correction1, correction2**-0.5, self._beta1, self._beta2, self._epsilon,
            **self._sizes,
        )  # fmt: skip
        return norm


def _grad(half: Tensor) -> Tensor:
    assert half.grad is not None
    assert half.grad.is_contiguous()
    return half.grad
