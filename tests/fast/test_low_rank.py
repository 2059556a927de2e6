"""Low-rank updates of weights (LoRA) against their definition, computed by plain and by fused modules."""

from typing import Any

import pytest
import torch
from helpers import random_sentences, small_language_model, small_model
from kernel_tensors import DEVICE, close
from torch import Tensor
from torch.func import functional_call

from transduce.data.batch import Batch
from transduce.errors import ConfigError
from transduce.models.model import Model
from transduce.nn.kinds import LINEAR_MAPS, LORA_A, LORA_B
from transduce.nn.low_rank import LowRank
from transduce.training.learner import make_precision

V, RANK, SCALE = 50, 3, 0.7
BATCHES = [
    Batch.of(DEVICE, src=random_sentences([7, 1], V, seed), tgt=random_sentences([4, 3], V, seed + 1))
    for seed in (1, 3)
]


def adapted(layers: tuple[str, ...] = LINEAR_MAPS, new_parts: tuple[str, ...] = (), **settings: Any) -> Model:
    """A model with low-rank updates that are not zero."""
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "num_heads": 2}
    model = small_model(vocab_size=V, **sizes, **settings).to(DEVICE).train()
    model.low_rank = LowRank(model, RANK, SCALE, {*layers}, new_parts)
    return model


def redraw(low_rank: LowRank) -> None:
    torch.manual_seed(5)
    low_rank.load_state_dict({name: 0.3 * torch.randn_like(x) for name, x in low_rank.state_dict().items()})


def loss_of(model: Model, batch: Batch, weights: dict[str, Tensor]) -> Tensor:
    hidden_MD = functional_call(model, weights, (batch,))
    output_VD = weights.get("embedding.weight_VD", model.output_weight_VD)
    return (hidden_MD @ output_VD.T).log_softmax(dim=1)[:, 7].sum()


def written_out(base: dict[str, Tensor], trained: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the model by the definition W + scale * B A."""
    updated = {name.removesuffix(LORA_A) for name in trained if name.endswith(LORA_A)}
    return {
        name: x + SCALE * trained[name + LORA_B] @ trained[name + LORA_A] if name in updated else trained.get(name, x)
        for name, x in base.items()
    }


def test_the_first_step_starts_from_the_base_bit_for_bit() -> None:
    model = adapted()
    base = {name: x.clone() for name, x in model.state_dict().items()}
    assert model.low_rank
    model.low_rank.apply()
    for name, x in model.state_dict().items():
        assert torch.equal(x, base[name])
    factors = model.low_rank.state_dict()
    assert all(x.any() == name.endswith(LORA_A) for name, x in factors.items())
    maps = {"self_attention.qkv", "cross_attention.q", "cross_attention.kv", "feed_forward.inner"}
    assert all(any(f"{name}.weight{LORA_A}" in key for key in factors) for name in maps)
    assert not any("embedding" in name or "norm" in name or "bias" in name for name in factors)


@pytest.mark.parametrize(
    ("fused", "settings"),
    [
        (False, {}),
        (True, {}),
        (True, {"norm": "pre", "norm_type": "rms", "bias": False, "activation": "swiglu", "positions": "rotary"}),
    ],
    ids=["plain", "fused", "fused-llama"],
)
def test_gradients_are_those_of_the_definition(
    fused: bool, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if fused:
        monkeypatch.setattr("transduce.fast.native.training.fuse_native", lambda model: False)
    model = adapted(new_parts=("decoder.0.residuals",), **settings)
    assert model.low_rank
    base = {name: x.clone() for name, x in model.state_dict().items()}
    redraw(model.low_rank)
    trained = {name: x.clone().requires_grad_() for name, x in model.low_rank.state_dict().items()}
    weights = written_out(base, trained)
    for name, x in model.state_dict().items():
        close(x, weights[name], 1e-5)
    precision = make_precision(model, half=False)
    if fused:
        pytest.importorskip("triton")
        from transduce.fast.kernels.fuse import fuse

        fuse(precision.worker)
    expected = torch.autograd.grad(
        sum(loss_of(adapted(**settings), batch, weights) for batch in BATCHES), list(trained.values())
    )
    for batch in BATCHES:  # gradient accumulation
        precision.begin()
        hidden_MD = precision.worker(batch)
        (hidden_MD @ model.output_weight_VD.T).log_softmax(dim=1)[:, 7].sum().backward()
        precision.collect()
    found = dict(model.low_rank.named_parameters())
    assert found.keys() == trained.keys()
    for (name, parameter), gradient in zip(found.items(), expected, strict=True):
        assert parameter.grad is not None, name
        close(parameter.grad, gradient, 1e-3)
    frozen = [name for name, weight in precision.worker.named_parameters() if weight.grad is None]
    assert "embedding.weight_VD" in frozen
    assert len(frozen) == len(base) - len(trained) + sum(name.endswith(LORA_A) for name in trained)


def test_the_copy_in_bfloat16_follows_the_updates() -> None:
    model = adapted()
    assert model.low_rank
    precision = make_precision(model, half=True)
    assert precision.worker.low_rank is None
    redraw(model.low_rank)
    with torch.no_grad():
        precision.refresh()
    for (name, x), half in zip(model.named_parameters(), precision.worker.parameters(), strict=True):
        assert torch.equal(x.bfloat16(), half), name


def test_the_loss_without_a_gradient_of_the_vocabulary_has_the_same_gradient_of_hidden_vectors() -> None:
    model = small_model(vocab_size=V).to(DEVICE)
    hidden_LD = torch.randn(6, 16, device=DEVICE, requires_grad=True)
    labels_L = torch.arange(6, device=DEVICE)
    gradients = []
    for weight_VD in (model.output_weight_VD, model.output_weight_VD.detach()):
        loss, _ = model.cross_entropy(hidden_LD, labels_L, weight_VD, 0.1)
        gradients.append(torch.autograd.grad(loss, hidden_LD)[0])
    assert torch.equal(*gradients)


def test_linear_maps_that_a_model_does_not_have_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no linear maps pooler; it has inner, kv, out, outer, q, qkv"):
        adapted(layers=("q", "pooler"))
    model = small_language_model(vocab_size=V)
    assert len(LowRank(model, 2, 1.0, {*LINEAR_MAPS}, ()).state_dict()) == 2 * 2 * 4
    with pytest.raises(ConfigError, match="no linear maps kv, q"):
        LowRank(model, 2, 1.0, {"q", "kv"}, ())
