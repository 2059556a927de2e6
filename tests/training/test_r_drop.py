"""R-Drop compared with its definition, computed with PyTorch's KL divergence and autograd."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.data.plan import BatchPlan
from transduce.data.variation import Variation
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.tokenizers.tokenizer import PAD, Tokenizer
from transduce.training import r_drop
from transduce.training.adam import Adam
from transduce.training.learner import Learner
from transduce.training.loader import Loader
from transduce.training.recipe import load_recipe
from transduce.training.train_config import TrainConfig
from transduce.translation.task import Translate

M, V, D = 13, 11, 6


def reference_symmetric_kl(
    first_MD: Tensor, second_MD: Tensor, labels_M: Tensor, embedding_VD: Tensor, cap: float | None = None
) -> Tensor:
    logits = (hidden @ embedding_VD.T for hidden in (first_MD, second_MD))
    logits = (x if cap is None else cap * torch.tanh(x / cap) for x in logits)
    log_p, log_q = (F.log_softmax(x, dim=1)[labels_M != PAD] for x in logits)
    return F.kl_div(log_p, log_q, reduction="sum", log_target=True) + F.kl_div(
        log_q, log_p, reduction="sum", log_target=True
    )


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("chunk", [V * 4, 1 << 20])
def test_value_and_gradients_equal_those_of_pytorch(
    chunk: int, cap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(r_drop, "_CPU_CHUNK", chunk)
    torch.manual_seed(1)
    labels_M = torch.randint(4, V, (M,))
    labels_M[[2, 12]] = PAD
    inputs = [torch.randn(size, D, requires_grad=True) for size in (M, M, V)]
    outcomes = []
    for function in (r_drop.symmetric_kl, reference_symmetric_kl):
        value = function(inputs[0], inputs[1], labels_M, inputs[2], cap)
        outcomes.append((value, *torch.autograd.grad(3 * value, inputs)))
    for ours, expected in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dropout", "extra"), [(0.0, False), (0.3, True)])
def test_the_loss_of_a_step_includes_the_divergence_of_two_passes(
    dropout: float,
    extra: bool,
    tmp_path: Path,
    toy_pairs: Any,
    toy_tokenizer: Tokenizer,
    make_shards: Callable[..., Any],
) -> None:
    """Without dropout, both passes are equal and R-Drop adds nothing; with dropout, it adds the definition's term."""
    recipe = load_recipe(None, "tiny", {}, [f"model.dropout={dropout}"])
    plan = BatchPlan(make_shards(tmp_path / "shards", toy_pairs), batch_tokens=80, seed=1)
    (batch,) = Loader(Translate(), plan, Variation(toy_tokenizer), torch.device("cpu")).batch(0)
    torch.manual_seed(1)
    model = EncoderDecoder(recipe.model, toy_tokenizer.vocab_size).train()
    optimizer = Adam(model.parameters())
    learner = Learner(model, optimizer, Translate(), TrainConfig(r_drop=4.0))
    torch.manual_seed(2)
    loss, nll = learner.compute(batch)

    torch.manual_seed(2)
    weight_VD, losses = model.embedding.weight_VD, []
    hidden = [learner.precision.worker(batch) for _ in range(2)]
    for hidden_MD in hidden:
        losses.append(F.cross_entropy(hidden_MD @ weight_VD.T, batch.labels_L, label_smoothing=0.1, reduction="sum"))
    divergence = reference_symmetric_kl(hidden[0], hidden[1], batch.labels_L, weight_VD)
    expected = (sum(losses) + 4 * divergence / 2) / 2
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-4)
    for weight, gradient in zip(model.parameters(), torch.autograd.grad(expected, model.parameters()), strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-4, atol=1e-4)
    assert (divergence.item() > 1) == extra
    assert nll < loss or not extra
