"""Matrix products by the fastest algorithm of cuBLASLt for their sizes, which are always the same in a CUDA graph.

torch takes the algorithm that the library expects to be the fastest. Another one is often faster, by up to a third.
Within `FastestProducts`, the candidates for a large product are timed when its sizes occur for the first time. Choices
are kept in the cache folder, so that later runs on the same machine add numbers in the same order.
"""

import ctypes
import json
import logging
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transduce.cache_folder import FASTEST_PRODUCTS, cache_folder
from transduce.disk import write_atomically
from transduce.errors import ConfigError

_SMALLEST = 1 << 31
"""Operations of the smallest products whose algorithm is chosen; smaller ones take a few microseconds."""
_CANDIDATES, _ROUNDS, _TIMES = 8, 3, 5
"""Algorithms that are compared, and how often: in each round, each is timed over several products."""
_MARGIN = 0.98
"""The share of the time of the library's first candidate below which another one is taken instead."""
_MOST_WORKSPACE = 64 << 20

# Constants of cublasLt.h and library_types.h.
_COMPUTE_FLOAT32, _FLOAT32, _HALF_TYPES = 68, 0, {torch.float16: 2, torch.bfloat16: 14}
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS_POINTER, _BIAS_TYPE = 3, 4, 7, 8, 26
_WORKSPACE_BYTES, _REDUCTIONS, _REDUCTION_IN_FLOAT32 = 1, 3, 2
_NO_EPILOGUE, _BIAS, _RELU_BIAS = 1, 4, 6

_log = logging.getLogger(__name__)


class FastestProducts(TorchDispatchMode):
    """Within this context, large products take the fastest algorithm for their sizes; other calls are torch's own."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        product = _product(func, args, kwargs) if _cublas_lt() else None
        return func(*args, **kwargs) if product is None else product.compute()


@dataclass
class _Product:
    """out = a b, or a b + bias, or max(0, a b + bias)."""

    a: Tensor
    b: Tensor
    out: Tensor
    bias: Tensor | None
    epilogue: int

    def compute(self) -> Tensor:
        (n, k), m = self.a.shape, self.b.shape[1]
        # In the library's column-major order, the transposed output is the product of b and a, transposed.
        sides = (_side(self.b.t()), _side(self.a.t()), (False, self.out.stride(0)))
        plan = _plan(self.out.device.index, m, n, k, sides, self.out.dtype, self.epilogue)
        plan.run(self, _choices().number(plan, self))
        return self.out


def _product(func: Any, args: Any, kwargs: Any) -> _Product | None:
    """The product that a call of torch is, if its algorithm is chosen here."""
    aten = torch.ops.aten
    if func in (aten.mm.default, aten.mm.out):
        (a, b), bias, epilogue = args, None, _NO_EPILOGUE
    elif func in (aten.addmm.default, aten._addmm_activation.default) and len(args) == 3 and not kwargs:
        bias, a, b = args
        epilogue = _BIAS if func is aten.addmm.default else _RELU_BIAS
        if bias.dim() != 1 or bias.dtype != a.dtype or not bias.is_contiguous():
            return None
    else:
        return None
    is_large = a.is_cuda and a.dtype in _HALF_TYPES and 2 * a.numel() * b.shape[1] >= _SMALLEST
    if not (is_large and a.dtype == b.dtype and _is_aligned(a) and _is_aligned(b)):
        return None
    out = kwargs.get("out")
    if out is None:
        out = a.new_empty(len(a), b.shape[1])
    elif out.dtype != a.dtype or out.stride(1) != 1:
        return None
    return _Product(a, b, out, bias, epilogue) if _is_aligned(out) else None


def _is_aligned(x: Tensor) -> bool:
    """Whether rows, or columns, are adjacent numbers that begin at addresses fast products can load."""
    return 1 in x.stride() and max(x.stride()) % 8 == 0 and x.data_ptr() % 16 == 0 and min(x.shape) > 1


def _side(x: Tensor) -> tuple[bool, int]:
    """Whether a matrix is stored row by row, and the distance of rows, or of columns."""
    return x.stride(0) != 1, max(x.stride())


class _Candidate(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class _Plan:
    """Products of certain sizes, by any of the candidates."""

    def __init__(
        self, m: int, n: int, k: int, sides: tuple[tuple[bool, int], ...], dtype: torch.dtype, epilogue: int
    ) -> None:
        self.name = f"{m} x {n} x {k} {sides} {dtype} {epilogue}"
        number = _HALF_TYPES[dtype]
        self._description = _create("MatmulDesc", ctypes.c_int(_COMPUTE_FLOAT32), ctypes.c_int(_FLOAT32))
        for attribute, value in ((_TRANSPOSE_A, int(sides[0][0])), (_TRANSPOSE_B, int(sides[1][0]))):
            self._set(attribute, ctypes.c_int32(value))
        self._set(_EPILOGUE, ctypes.c_uint32(epilogue))
        if epilogue != _NO_EPILOGUE:
            self._set(_BIAS_TYPE, ctypes.c_int32(number))
        shapes = ((m, k), (k, n), (m, n))
        self._layouts = [
            _create("MatrixLayout", ctypes.c_int(number), *map(ctypes.c_uint64, reversed(shape) if rowwise else shape),
                    ctypes.c_int64(distance))
            for shape, (rowwise, distance) in zip(shapes, sides, strict=True)
        ]  # fmt: skip
        preference = _create("MatmulPreference")
        for attribute, limit in ((_WORKSPACE_BYTES, ctypes.c_uint64(_MOST_WORKSPACE)),
                                 (_REDUCTIONS, ctypes.c_uint32(_REDUCTION_IN_FLOAT32))):  # fmt: skip
            _call("MatmulPreferenceSetAttribute", preference, attribute, ctypes.byref(limit), ctypes.sizeof(limit))
        found, candidates = ctypes.c_int(), (_Candidate * _CANDIDATES)()
        a, b, out = self._layouts
        _call("MatmulAlgoGetHeuristic", _handle(), self._description, a, b, out, out, preference, _CANDIDATES,
              candidates, ctypes.byref(found))  # fmt: skip
        _call("MatmulPreferenceDestroy", preference)
        self._candidates = candidates[: found.value]
        assert self._candidates, f"cuBLASLt has no algorithm for {self.name}"

    def __len__(self) -> int:
        return len(self._candidates)

    def run(self, product: _Product, number: int) -> None:
        """Compute a product by candidate `number`."""
        candidate = self._candidates[number]
        workspace = torch.empty(candidate.workspace, dtype=torch.uint8, device=product.out.device)
        if product.bias is not None:
            self._set(_BIAS_POINTER, _address(product.bias))
        a, b, layout = self._layouts
        out = _address(product.out)
        _call(
            "Matmul", _handle(), self._description, ctypes.byref(ctypes.c_float(1)), _address(product.b), a,
            _address(product.a), b, ctypes.byref(ctypes.c_float(0)), out, layout, out, layout,
            ctypes.byref(candidate), _address(workspace), ctypes.c_size_t(workspace.numel()),
            ctypes.c_void_p(torch.cuda.current_stream(product.out.device).cuda_stream),
        )  # fmt: skip

    def fastest(self, product: _Product) -> int:
        """The number of the candidate that takes the least time; the first one if the others hardly gain."""
        times = [float("inf")] * len(self._candidates)
        for _ in range(_ROUNDS):
            for number in range(len(times)):
                times[number] = min(times[number], self._time(product, number))
        best = min(range(len(times)), key=times.__getitem__)
        return best if times[best] < _MARGIN * times[0] else 0

    def _time(self, product: _Product, number: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.run(product, number)
        begin.record()
        for _ in range(_TIMES):
            self.run(product, number)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def _set(self, attribute: int, value: Any) -> None:
        _call("MatmulDescSetAttribute", self._description, attribute, ctypes.byref(value), ctypes.sizeof(value))


@cache
def _plan(device: int, *sizes: Any) -> _Plan:
    """The plan for products of these sizes on a device."""
    return _Plan(*sizes)


class _Choices:
    """The numbers of the fastest candidates on this machine, kept in a file."""

    def __init__(self) -> None:
        library = _cublas_lt()
        assert library is not None
        self._machine = f"{torch.cuda.get_device_name()}, cuBLASLt {library.cublasLtGetVersion()}"
        self._numbers = _read().get(self._machine, {})

    def number(self, plan: _Plan, product: _Product) -> int:
        """The choice for a product; while a graph is recorded, nothing can be measured."""
        number = self._numbers.get(plan.name)
        if not isinstance(number, int) or not 0 <= number < len(plan):
            if torch.cuda.is_current_stream_capturing():
                return 0
            number = self._numbers[plan.name] = plan.fastest(product)
            self._write()
        return number

    def _write(self) -> None:
        try:
            path = cache_folder() / FASTEST_PRODUCTS
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(path, json.dumps({**_read(), self._machine: self._numbers}, indent=0).encode())
        except (OSError, ConfigError):
            pass  # the next process measures them again


def _read() -> dict[str, dict[str, Any]]:
    """The file of choices: for each machine, numbers by the names of plans."""
    try:
        content = json.loads((cache_folder() / FASTEST_PRODUCTS).read_text(encoding="utf-8"))
        return {machine: dict(numbers) for machine, numbers in dict(content).items()}
    except (OSError, ValueError, TypeError, ConfigError):
        return {}  # they are measured again


@cache
def _choices() -> _Choices:
    return _Choices()


@cache
def _cublas_lt() -> ctypes.CDLL | None:
    """The library, which torch has loaded already; None without an NVIDIA GPU."""
    if not torch.version.cuda:
        return None
    major = torch.version.cuda.partition(".")[0]
    try:
        return ctypes.CDLL(f"cublasLt64_{major}.dll" if sys.platform == "win32" else f"libcublasLt.so.{major}")
    except OSError as error:
        _log.warning(
            "transduce: torch chooses the algorithms of matrix products, which costs a little speed: %s", error
        )
        return None


@cache
def _handle() -> ctypes.c_void_p:
    return _create("")


def _create(kind: str, *arguments: Any) -> ctypes.c_void_p:
    """An object of the library."""
    created = ctypes.c_void_p()
    _call(f"{kind}Create", ctypes.byref(created), *arguments)
    return created


def _call(name: str, *arguments: Any) -> None:
    if status := getattr(_cublas_lt(), f"cublasLt{name}")(*arguments):
        raise RuntimeError(f"cublasLt{name} failed with status {status}")


def _address(x: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.data_ptr())
