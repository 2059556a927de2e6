"""Triton kernels: the same sums as the readable forms beside their callers, laid out for a GPU."""

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None  # it comes with CUDA builds of torch


def fit(x: Tensor) -> bool:
    """Whether the kernels take this tensor: half precision, on a CUDA GPU, with Triton there."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and HAS_TRITON
