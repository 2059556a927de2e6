"""Attention heads: their names, ablation, and the numbers that one computes at one position (section 3.2.1).

`cross.2.3` is head 3 of the cross-attention in decoder layer 2, counted from 1.
"""

import copy
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from transduce.data.batch import Batch
from transduce.errors import ConfigError, ModelError
from transduce.inspect.request import HeadRequest, check_tokens, inspected_model, inspected_part
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.translation.translator import Translator

Stack = Literal["encoder", "decoder", "cross"]
STACKS: tuple[Stack, ...] = ("encoder", "decoder", "cross")
_MODULES = {
    "encoder": "encoder.{}.self_attention",
    "decoder": "decoder.{}.self_attention",
    "cross": "decoder.{}.cross_attention",
}


@dataclass(frozen=True)
class Head:
    """An attention head; layer and head are indices that start at 0."""

    stack: Stack
    layer: int
    head: int

    @property
    def module(self) -> str:
        """The name of its attention module in the model."""
        return module_name(self.stack, self.layer)


def module_name(stack: Stack, layer: int) -> str:
    """The name of a layer's attention module in the model."""
    return _MODULES[stack].format(layer)


def count_layers(config: EncoderDecoderConfig, stack: Stack) -> int:
    """The number of layers that have this kind of attention."""
    return config.encoder_layers if stack == "encoder" else config.decoder_layers


def parse_heads(names: Iterable[str], config: EncoderDecoderConfig) -> list[Head]:
    """Parse the names of heads, without duplicates; ConfigError if the model has no such head."""
    return list(dict.fromkeys(_parse(name, config) for name in names))


def _parse(name: str, config: EncoderDecoderConfig) -> Head:
    stack, *numbers = name.split(".")
    if stack not in STACKS or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise ConfigError(
            f"{name!r} is not the name of a head: write STACK.LAYER.HEAD, e.g. cross.1.2; stacks: {', '.join(STACKS)}"
        )
    layer, head = (int(number[:9]) for number in numbers)
    layers = count_layers(config, stack)
    if not (1 <= layer <= layers and 1 <= head <= config.num_heads):
        raise ConfigError(
            f"head {name} does not exist: {stack} has layers 1 to {layers} with heads 1 to {config.num_heads}"
        )
    return Head(stack, layer - 1, head - 1)


# Ablation

M = TypeVar("M", bound=nn.Module)


def sharing_copy(model: M) -> M:
    """A copy of the modules that shares the weights, so that hooks on one do not run for the other."""
    memo: dict[int, Any] = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    for module in model.modules():
        memo[id(module._forward_hooks)] = OrderedDict()  # another thread may have hooks on the original at this moment
    return copy.deepcopy(model, memo)


@torch.no_grad()
def without_heads(model: M, heads: Iterable[Head]) -> M:
    """A sharing copy in which these heads contribute nothing.

    A head's output passes through its columns of W^O; in the copy these are zero.
    """
    ablated = sharing_copy(model)
    for head in heads:
        attention = ablated.get_submodule(head.module)
        assert isinstance(attention, SelfAttention | CrossAttention)
        weight, d_v = attention.out.weight.clone(), attention.heads.d_v
        weight[:, head.head * d_v : (head.head + 1) * d_v] = 0
        attention.out.weight = nn.Parameter(weight, requires_grad=False)
    return ablated


# Numbers


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
    q_NHK, k_MHK, v_MHK = _projections(model, head, Batch.of(model.device, src=[source], tgt=[inputs]))
    shared = head.head * k_MHK.shape[1] // q_NHK.shape[1]  # with grouped heads, several queries have the same keys
    end = request.query + 1 if head.stack == "decoder" else len(k_MHK)
    query_K, key_MK, value_MK = q_NHK[request.query, head.head], k_MHK[:end, shared], v_MHK[:end, shared]
    product_M = key_MK @ query_K
    weight_M = (product_M / math.sqrt(len(query_K))).softmax(0)
    columns = (query_K, key_MK, product_M, weight_M, value_MK, weight_M @ value_MK)
    return HeadNumbers(*(rounded(column) for column in columns))


def _projections(model: EncoderDecoder, head: Head, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of all heads of the layer, in a forward pass."""
    model = sharing_copy(model)  # other threads may use the original
    attention, arguments = model.get_submodule(head.module), list[Any]()
    attention.register_forward_pre_hook(lambda _, args: arguments.extend(args))
    model(batch)
    x_ND, segments, *memory = arguments
    if isinstance(attention, SelfAttention):
        return attention.project(x_ND, segments.position_N)
    assert isinstance(attention, CrossAttention)
    k_MHK, v_MHK = attention.project_memory(memory[0])
    return attention.queries(x_ND), k_MHK, v_MHK


def rounded(x: Tensor) -> list[Any]:
    """Numbers rounded to four decimal places, which is enough for the page."""
    return (x.double() * 1e4).round().div(1e4).tolist()
