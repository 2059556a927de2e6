"""Triton kernels: fused GPU forms of the computations that their callers also have in plain torch."""

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None  # CUDA builds of torch include it


def fit(x: Tensor) -> bool:
    """Whether the kernels support this tensor: half precision, on a CUDA GPU, with Triton installed."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and HAS_TRITON
