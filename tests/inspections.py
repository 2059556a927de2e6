"""Inspections, and the forward passes that they are compared with."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import logits
from torch import Tensor

from transduce.data.batch import Batch
from transduce.inspect.inspection import Inspection, inspect_translation
from transduce.inspect.request import InspectionRequest
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.translation.translator import Translator

TEXT = "bada gobi dudu begu"
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])
MakeTranslator = Callable[..., Translator]


def inspect(translator: Translator, **request: Any) -> Inspection:
    """The inspection that this request gives."""
    return inspect_translation(translator, InspectionRequest(**request))


@torch.inference_mode()
def hidden(model: EncoderDecoder, source: list[int], target: list[int]) -> Tensor:
    """The last hidden vectors (T, D) of a forward pass."""
    return model(Batch.of(src=[source], tgt=[[BOS, *target]]))


@torch.inference_mode()
def log_probs(model: EncoderDecoder, source: list[int], target: list[int]) -> Tensor:
    """Log-probabilities (T, V) of every token at each step, from a forward pass."""
    return logits(model, hidden(model, source, target)).log_softmax(-1)


def total_log_prob(model: EncoderDecoder, source: list[int], target: list[int], end: bool) -> float:
    """The log-probability of a target, with its end marker if `end`."""
    written = [*target, EOS] if end else target
    log_prob_TV = log_probs(model, source, target)
    return sum(log_prob_TV[t, token].item() for t, token in enumerate(written))
