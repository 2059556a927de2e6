"""Counting what a computation does: FLOPs, dependent products, memory; and measuring its time."""

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

_aten = torch.ops.aten
_PRODUCTS = {_aten.mm, _aten.bmm, _aten.addmm, _aten.baddbmm, _aten.convolution}


def count_flops(function: Callable[[], object]) -> int:
    """The FLOPs of all matrix products and convolutions; an addition and a multiplication are two."""
    # The math backend consists of products that are counted; fused kernels on a CPU are not.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


class _Depth(TorchDispatchMode):
    """Follows, for each tensor, the longest chain of dependent products that leads to it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.depths: dict[int, int] = {}
        self._kept: list[Tensor] = []  # so that no id is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        before = [self.depths.get(id(x), 0) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        depth = max(before, default=0) + (func.overloadpacket in _PRODUCTS)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.depths[id(tensor)] = max(depth, self.depths.get(id(tensor), 0))
                self._kept.append(tensor)
        return result


def sequential_products(function: Callable[[], object]) -> int:
    """The longest chain of products of which each needs the one before: they cannot run in parallel."""
    with torch.no_grad(), _Depth() as mode:
        function()
    return max(mode.depths.values(), default=0)


class _Allocations(TorchDispatchMode):
    """Adds up the memory of all tensors that are created, views excluded."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in known:
                self.bytes += tensor.untyped_storage().nbytes()
        return result


def allocated_bytes(function: Callable[[], object]) -> int:
    """The memory of all tensors that a function creates."""
    with torch.no_grad(), _Allocations() as mode:
        function()
    return mode.bytes


def seconds_of(function: Callable[[], object], device: torch.device, budget: float = 0.3) -> float:
    """The shortest time of a call; calls are repeated for about `budget` seconds, once at least."""

    def once() -> float:
        began = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    with torch.inference_mode():
        first = once()  # allocates, and on a GPU compiles
        times = [once()] if first < budget else [first]
        while sum(times) + first < budget and len(times) < 50:
            times.append(once())
    return min(times)


def exponent(points: list[tuple[float, float]]) -> float:
    """The slope of a line through the logarithms of the points: the power with which y grows with x."""
    x, y = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def describe_machine(device: torch.device) -> str:
    """The device that measures, in words."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} {'thread' if threads == 1 else 'threads'}, torch {torch.__version__}"
