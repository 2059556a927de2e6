"""The numbers of one head at one position."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import small_model

from transduce.errors import ConfigError, ModelError
from transduce.inspect.heads import head_numbers
from transduce.inspect.inspection import Inspection, inspect_translation
from transduce.inspect.request import HeadRequest, InspectionRequest
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator


@pytest.fixture(scope="module", params=[4, 2], ids=["own keys", "shared keys"])
def translator(request: pytest.FixtureRequest, toy_tokenizer: Tokenizer) -> Translator:
    return Translator(small_model(3, toy_tokenizer.vocab_size, kv_heads=request.param).eval(), toy_tokenizer)


@pytest.fixture(scope="module")
def inspection(translator: Translator) -> Inspection:
    return inspect_translation(translator, InspectionRequest(text="bada gobi"))


@pytest.mark.parametrize(("stack", "query"), [("encoder", 1), ("decoder", 2), ("cross", 2)])
def test_the_numbers_follow_the_definition(
    translator: Translator, inspection: Inspection, stack: str, query: int
) -> None:
    request = HeadRequest(text="bada gobi", head=f"{stack}.2.4", query=query, output=inspection.best.tokens)
    numbers = head_numbers(translator, request)
    query_K, key_MK, value_MK = (torch.tensor(x) for x in (numbers.query, numbers.keys, numbers.values))
    assert (key_MK @ query_K).tolist() == pytest.approx(numbers.products, abs=1e-2)
    weights = torch.tensor(numbers.products).div(math.sqrt(len(query_K))).softmax(0)
    assert weights.tolist() == pytest.approx(numbers.weights, abs=1e-3)
    assert (weights @ value_MK).tolist() == pytest.approx(numbers.output, abs=1e-2)
    observed = inspection.attention[stack][1, 3, query]  # type: ignore[index]
    assert numbers.weights == pytest.approx(observed[: len(numbers.weights)].tolist(), abs=1e-3)
    assert observed[len(numbers.weights) :].sum() == 0


def test_a_position_or_a_head_that_does_not_exist_is_refused(translator: Translator) -> None:
    request = HeadRequest(text="bada", head="cross.1.1", query=0)
    with pytest.raises(ConfigError, match="query 5 is not a position"):
        head_numbers(translator, replace(request, query=5))
    with pytest.raises(ConfigError, match="heads 1 to 4"):
        head_numbers(translator, replace(request, head="cross.1.9"))


def test_models_with_relative_positions_are_refused(toy_tokenizer: Tokenizer) -> None:
    model = small_model(3, toy_tokenizer.vocab_size, positions="relative").eval()
    with pytest.raises(ModelError, match="relative positions"):
        head_numbers(Translator(model, toy_tokenizer), HeadRequest(text="bada", head="cross.1.1", query=0))
