"""Position-wise feed-forward network (section 3.3)."""

from torch import Tensor, nn

from transduce.nn.linear import projections


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, for each token by itself; `outer` (W2, b2) is applied by `block.Residual`."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = projections(d_model, [d_ff])
        self.outer = projections(d_ff, [d_model])

    def forward(self, x_ND: Tensor) -> Tensor:
        """(N, D) to max(0, x W1 + b1) (N, F)."""
        return self.inner(x_ND, relu=True)
