"""Heads that are switched off, in a copy of the model that shares its weights."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from inspections import NORMS, TEXT, MakeTranslator, hidden, inspect, log_probs, total_log_prob
from torch import Tensor

from transduce.inspect.heads import Head, parse_heads, sharing_copy
from transduce.inspect.inspection import TOP_TOKENS, inspect_translation
from transduce.inspect.request import InspectionRequest
from transduce.nn.observe import observe_attention
from transduce.tokenizers.tokenizer import EOS
from transduce.translation.translator import Translator


@NORMS
@pytest.mark.parametrize("name", ["encoder.1.2", "decoder.2.4", "cross.1.1"])
def test_a_head_that_is_off_has_no_effect(make_translator: MakeTranslator, norm: str, name: str) -> None:
    translator = make_translator(norm=norm, d_k=3, d_v=5)
    inspection = inspect(translator, text=TEXT, off=[name])
    (head,) = parse_heads([name], translator.model.config)
    ablated = sharing_copy(translator.model)

    def zero_head(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
        keep = torch.ones(4, 5)
        keep[head.head] = 0
        return (inputs[0] * keep.flatten(),)

    ablated.get_submodule(f"{head.module}.out").register_forward_pre_hook(zero_head)
    assert inspection.best.log_prob == pytest.approx(
        total_log_prob(ablated, inspection.source, inspection.best.tokens, True), abs=1e-3
    )
    torch.testing.assert_close(
        inspection.layers[-1].log_prob_TC,
        log_probs(ablated, inspection.source, inspection.best.tokens).topk(TOP_TOKENS).values,
        rtol=0,
        atol=1e-4,
    )
    assert inspection.ablation
    full = inspect(translator, text=TEXT).best
    assert inspection.ablation.full == full
    assert inspection.ablation.rescored.tokens == full.tokens
    expected = total_log_prob(ablated, inspection.source, full.tokens, True)
    assert inspection.ablation.rescored.log_prob == pytest.approx(expected, abs=1e-3)
    assert inspection.ablation.rescored.log_prob != pytest.approx(full.log_prob, abs=1e-3)


def test_an_inspection_does_not_change_the_model(translator: Translator) -> None:
    before = {name: x.clone() for name, x in translator.model.state_dict().items()}
    inspect(translator, text=TEXT, off=["cross.1.1", "cross.1.2", "encoder.2.4"])
    assert all(torch.equal(x, before[name]) for name, x in translator.model.state_dict().items())
    assert not any(module._forward_hooks for module in translator.model.modules())


def test_concurrent_inspections_and_translations_are_independent(translator: Translator) -> None:
    requests = [InspectionRequest(text=TEXT, off=off) for off in ([], ["cross.1.1"], ["encoder.2.4", "decoder.1.2"])]

    def work(request: InspectionRequest) -> tuple[Any, ...]:
        inspection = inspect_translation(translator, request)
        cross = inspection.attention["cross"].tolist()
        return inspection.best, cross, len(inspection.layers), translator.translate(TEXT)

    expected = [work(request) for request in requests]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            assert list(pool.map(work, requests)) == expected


def test_a_copy_shares_weights_but_no_hooks(translator: Translator) -> None:
    copy = sharing_copy(translator.model)
    for mine, own in zip(copy.parameters(), translator.model.parameters(), strict=True):
        assert mine is own
    calls: list[str] = []
    copy.decoder[0].register_forward_hook(lambda *_: calls.append("called"))
    hidden(translator.model, [5, EOS], [6])
    assert not calls
    hidden(copy, [5, EOS], [6])
    assert calls


def test_a_copy_made_while_the_model_is_observed_is_not_observed(translator: Translator) -> None:
    with observe_attention(translator.model) as observed:
        copy = sharing_copy(translator.model)
        hidden(copy, [5, EOS], [6])
        assert not observed
        hidden(translator.model, [5, EOS], [6])
        assert observed
    assert not any(module._forward_hooks for module in copy.modules())


def test_duplicate_heads_are_removed(translator: Translator) -> None:
    heads = parse_heads(["cross.1.2", "cross.1.2", "encoder.2.1"], translator.model.config)
    assert heads == [Head("cross", 0, 1), Head("encoder", 1, 0)]
