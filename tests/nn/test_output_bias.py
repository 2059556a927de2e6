"""The bias of the logits in the loss, compared with PyTorch's cross-entropy and autograd."""

import pytest
import torch
from torch.nn import functional as F

from transduce.nn.loss import smoothed_cross_entropy, with_bias
from transduce.tokenizers.tokenizer import PAD

L, V, D = 13, 11, 6


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_equal_those_of_pytorch(smoothing: float) -> None:
    torch.manual_seed(1)
    labels_L = torch.randint(4, V, (L,))
    labels_L[[2, 12]] = PAD
    outcomes = []
    for ours in (True, False):
        torch.manual_seed(2)
        hidden_LD, weight_VD, bias_V = (torch.randn(shape, requires_grad=True) for shape in ((L, D), (V, D), (V,)))
        if ours:
            hidden_LE, weight_VE = with_bias(hidden_LD, weight_VD, bias_V)
            assert hidden_LE.shape[1] % 2 == 0
            loss, _ = smoothed_cross_entropy(hidden_LE, labels_L, weight_VE, smoothing)
        else:
            logits_LV = F.linear(hidden_LD, weight_VD, bias_V)
            loss = F.cross_entropy(logits_LV, labels_L, ignore_index=PAD, reduction="sum", label_smoothing=smoothing)
        loss.backward()
        outcomes.append([loss.detach(), *(x.grad for x in (hidden_LD, weight_VD, bias_V))])
    for first, second in zip(*outcomes, strict=True):
        torch.testing.assert_close(first, second)


def test_without_a_bias_nothing_is_copied() -> None:
    hidden_LD, weight_VD = torch.randn(L, D), torch.randn(V, D)
    assert with_bias(hidden_LD, weight_VD, None) == (hidden_LD, weight_VD)
