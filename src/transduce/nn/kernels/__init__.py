"""Triton kernels: the same sums as the readable engines, laid out for a GPU."""
