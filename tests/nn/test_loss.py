"""The loss with label smoothing (section 5.4 of the paper), against the distribution written out and torch."""

import random

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.nn import loss as loss_module
from transduce.nn.loss import smoothed_cross_entropy

PAD = 0


def loss_case(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden vectors, labels (some PAD) and an embedding that both want gradients."""
    generator = torch.Generator().manual_seed(seed)
    hidden_MD = torch.randn(17, 6, generator=generator, requires_grad=True)
    embedding_VD = torch.randn(13, 6, generator=generator, requires_grad=True)
    labels_M = torch.randint(1, 13, (17,), generator=generator)
    labels_M[[0, 5, 6, 16]] = PAD
    return hidden_MD, labels_M, embedding_VD


def explicit_loss(hidden_MD: Tensor, labels_M: Tensor, embedding_VD: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy with the distribution (1 - eps) * one-hot + eps / V, row by row; and without smoothing."""
    loss = nll = torch.zeros((), dtype=torch.float64)
    V = len(embedding_VD)
    for hidden_D, label in zip(hidden_MD.double(), labels_M.tolist(), strict=True):
        if label == PAD:
            continue
        exponentials_V = (embedding_VD.double() @ hidden_D).exp()
        log_prob_V = (exponentials_V / exponentials_V.sum()).log()
        target_V = torch.tensor([(1 - smoothing) * (word == label) + smoothing / V for word in range(V)]).double()
        loss = loss - (target_V * log_prob_V).sum()
        nll = nll - log_prob_V[label]
    return loss, nll


@pytest.mark.parametrize("logits_at_once", [1, 13, 40, 13 * 16, 13 * 17, 1 << 22])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_the_loss_and_its_gradients_are_those_of_the_explicit_distribution(
    smoothing: float, logits_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "_CPU_CHUNK", logits_at_once)
    hidden_MD, labels_M, embedding_VD = loss_case(seed=1)
    expected, expected_nll = explicit_loss(hidden_MD, labels_M, embedding_VD, smoothing)
    expected_grads = torch.autograd.grad(0.7 * expected, [hidden_MD, embedding_VD])

    loss, nll = smoothed_cross_entropy(hidden_MD, labels_M, embedding_VD, smoothing)
    grads = torch.autograd.grad(0.7 * loss, [hidden_MD, embedding_VD])

    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert nll.item() == pytest.approx(expected_nll.item(), rel=1e-5)
    for grad, expected_grad in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(grad, expected_grad, rtol=1e-4, atol=1e-5)
    assert torch.equal(grads[0][labels_M == PAD], torch.zeros(4, 6))


@pytest.mark.parametrize("cap", [None, 0.7, 3.0])
def test_without_smoothing_the_loss_is_torchs_cross_entropy(cap: float | None) -> None:
    hidden_MD, labels_M, embedding_VD = loss_case(seed=2)
    logits_MV = hidden_MD @ embedding_VD.T
    logits_MV = logits_MV if cap is None else cap * torch.tanh(logits_MV / cap)
    expected = F.cross_entropy(logits_MV, labels_M, reduction="sum", ignore_index=PAD)
    expected_grads = torch.autograd.grad(expected, [hidden_MD, embedding_VD])
    loss, nll = smoothed_cross_entropy(hidden_MD, labels_M, embedding_VD, 0.0, cap)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert nll.item() == pytest.approx(expected.item(), rel=1e-5)
    grads = torch.autograd.grad(loss, [hidden_MD, embedding_VD])
    torch.testing.assert_close(grads, expected_grads, rtol=1e-4, atol=1e-5)


def test_a_batch_of_only_pad_labels_has_no_loss_and_no_gradient() -> None:
    hidden_MD, labels_M, embedding_VD = loss_case(seed=3)
    loss, nll = smoothed_cross_entropy(hidden_MD, torch.full_like(labels_M, PAD), embedding_VD, 0.1)
    grads = torch.autograd.grad(loss, [hidden_MD, embedding_VD])
    assert (loss.item(), nll.item()) == (0, 0)
    assert all(torch.equal(grad, torch.zeros_like(grad)) for grad in grads)


def test_large_logits_do_not_overflow_the_loss() -> None:
    draw = random.Random(0)
    hidden_MD = torch.tensor([[draw.choice([-300.0, 300.0]) for _ in range(6)] for _ in range(5)])
    embedding_VD = loss_case(seed=4)[2].detach()
    labels_M = torch.tensor([1, 5, 12, 3, 7])
    expected = F.cross_entropy((hidden_MD @ embedding_VD.T).double(), labels_M, reduction="sum")
    loss, _ = smoothed_cross_entropy(hidden_MD, labels_M, embedding_VD, 0.0)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
