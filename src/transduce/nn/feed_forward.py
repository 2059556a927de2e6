"""Position-wise feed-forward network (section 3.3)."""

from torch import Tensor, nn


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, for each token by itself."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x_ND: Tensor) -> Tensor:
        """(N, D) to (N, D)."""
        return self.outer(self.inner(x_ND).relu_())
