"""The numbers of one attention head at one position: query, keys, scores, weights, values, output (section 3.2.1)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transduce.data.batch import Batch
from transduce.errors import ConfigError, ModelError
from transduce.inspect.heads import parse_heads
from transduce.inspect.inspection import check_tokens, inspected_model, inspected_part
from transduce.inspect.request import HeadRequest
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.translation.translator import Translator


@dataclass(frozen=True)
class HeadNumbers:
    """The computation of one head for one query: softmax(q·k / sqrt(d_k)) weighs the values."""

    query: list[float]
    keys: list[list[float]]
    """The key of every position that the query may attend to."""
    products: list[float]
    """The dot product of the query and each key."""
    weights: list[float]
    """softmax(products / sqrt(d_k))."""
    values: list[list[float]]
    output: list[float]
    """The sum of the values, weighted."""


@torch.inference_mode()
def head_numbers(translator: Translator, request: HeadRequest) -> HeadNumbers:
    """Compute the numbers of a head by a forward pass over a text and its translation."""
    model, part = inspected_model(translator), inspected_part(translator, request.text, request.to)
    if not isinstance(model, EncoderDecoder) or model.config.positions == "relative":
        raise ModelError("the numbers of a head are only shown for Transformers without relative positions")
    (head,) = parse_heads([request.head], model.config)
    check_tokens(request.output, model)
    source, inputs = [*part.tokens, EOS], [BOS, *request.output]
    queries = len(source) if head.stack == "encoder" else len(inputs)
    if not 0 <= request.query < queries:
        raise ConfigError(f"query {request.query} is not a position: there are 0 to {queries - 1}")
    attention = model.get_submodule(head.module)
    with _arguments(attention) as recorded:
        model(Batch.of(model.device, src=[source], tgt=[inputs]))
    q_NHK, k_MHK, v_MHK = _project(attention, *recorded)
    assert isinstance(attention, SelfAttention | CrossAttention)
    shared = head.head * k_MHK.shape[1] // q_NHK.shape[1]  # with grouped heads, several queries have the same keys
    end = request.query + 1 if head.stack == "decoder" else len(k_MHK)
    query_K, key_MK, value_MK = q_NHK[request.query, head.head], k_MHK[:end, shared], v_MHK[:end, shared]
    product_M = key_MK @ query_K
    weight_M = (product_M / math.sqrt(len(query_K))).softmax(0)
    columns = (query_K, key_MK, product_M, weight_M, value_MK, weight_M @ value_MK)
    return HeadNumbers(*(_rounded(column) for column in columns))


@contextmanager
def _arguments(module: nn.Module) -> Iterator[list[Any]]:
    """A forward pass inside fills the list with the module's arguments."""
    recorded: list[Any] = []

    def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
        recorded.extend(args)

    handle = module.register_forward_pre_hook(hook)
    try:
        yield recorded
    finally:
        handle.remove()


def _project(attention: nn.Module, x_ND: Tensor, segments: Any, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(attention, SelfAttention):
        return attention.project(x_ND, segments.position_N)
    assert isinstance(attention, CrossAttention)
    k_MHK, v_MHK = attention.project_memory(rest[0])
    return attention.queries(x_ND), k_MHK, v_MHK


def _rounded(x: Tensor) -> Any:
    return (x.double() * 1e4).round().div(1e4).tolist()
