"""Position-wise feed-forward network (section 3.3)."""

from torch import Tensor, nn

from transduce.nn.linear import projections


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, for each token separately; `inner` is W1 and b1, `outer` is W2 and b2."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = projections(d_model, [d_ff])
        self.outer = projections(d_ff, [d_model])

    def forward(self, x_ND: Tensor, *, bias: bool = True) -> Tensor:
        """(N, D) to (N, D); with `bias=False`, b2 is left to the caller (`layers.Residual`)."""
        return self.outer(self.inner(x_ND, relu=True), bias=bias)
