"""Position-wise feed-forward network (section 3.3), with the activations of later models."""

from torch import Tensor, nn
from torch.nn import functional as F

from transduce.nn.kinds import Activation as Activation
from transduce.nn.linear import projections

GATED = {"geglu": "gelu_tanh", "swiglu": "swish"}
"""The activation of the gate, by the name of a gated activation."""


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, for each token separately; `inner` is W1 and b1, `outer` is W2 and b2.

    With a gated activation, the first half of `inner` is the gate.
    """

    def __init__(self, d_model: int, d_ff: int, activation: Activation = "relu", *, bias: bool = True) -> None:
        super().__init__()
        self.activation = activation
        self.inner = projections(d_model, [d_ff, d_ff] if activation in GATED else [d_ff], bias=bias)
        self.outer = projections(d_ff, [d_model], bias=bias)

    def forward(self, x_ND: Tensor) -> Tensor:
        """(N, D) to (N, D)."""
        x_NF = self.inner(x_ND)
        if self.activation in GATED:
            gate_NF, x_NF = x_NF.chunk(2, dim=-1)
            return self.outer(activate(gate_NF, GATED[self.activation]) * x_NF)
        return self.outer(activate(x_NF, self.activation))


def activate(x: Tensor, activation: str) -> Tensor:
    """Apply an activation that is not gated to every element."""
    if activation == "relu":
        return F.relu(x, inplace=True)
    if activation == "swish":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")
