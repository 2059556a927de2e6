"""Random tensors for the tests of kernels, and their comparison."""

import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-4, atol=tolerance)


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(DEVICE)
