"""Triton kernels: fused GPU forms of what `nn/` computes in plain torch. `fuse.py` puts them into a model."""

from importlib.util import find_spec

HAS_TRITON = find_spec("triton") is not None
"""CUDA builds of torch include it."""
