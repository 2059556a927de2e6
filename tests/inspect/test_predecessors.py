"""Inspections of recurrent and convolutional models, which have cross-attention only."""

from typing import Any

import pytest
import torch
from helpers import logits

from transduce.data.batch import Batch
from transduce.errors import ConfigError
from transduce.inspect.inspection import inspect_translation
from transduce.inspect.request import InspectionRequest
from transduce.inspect.serialize import serialize
from transduce.models.registry import build_config, create_model
from transduce.nn.observe import observe_attention
from transduce.tokenizers.tokenizer import BOS, Tokenizer
from transduce.translation.translator import Translator

TEXT = "dedu babo gigo babo"


@pytest.fixture(params=["recurrent", "convolutional"])
def translator(request: pytest.FixtureRequest, toy_tokenizer: Tokenizer) -> Translator:
    table: dict[str, Any] = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2}
    torch.manual_seed(1)
    return Translator(
        create_model(build_config(request.param, table, "test"), toy_tokenizer.vocab_size).eval(), toy_tokenizer
    )


def test_an_inspection_has_the_weights_and_the_predictions_of_the_model(translator: Translator) -> None:
    inspection = inspect_translation(translator, InspectionRequest(text=TEXT, beam=3))
    model, inputs = translator.model, [BOS, *inspection.best.tokens]
    with observe_attention(model) as recorded, torch.inference_mode():
        log_prob_TV = logits(model, model(Batch.of(src=[inspection.source], tgt=[inputs]))).log_softmax(-1)
    S, T = len(inspection.source), len(inspection.target)
    torch.testing.assert_close(inspection.attention["cross"], torch.cat(list(recorded.values())))
    assert inspection.attention["encoder"].shape == (0, 1, S, S)
    assert inspection.attention["decoder"].shape == (0, 1, T, T)
    (layer,) = inspection.layers
    torch.testing.assert_close(layer.written_T, log_prob_TV[range(T), inspection.target])
    assert layer.written_T.sum().item() == pytest.approx(inspection.best.log_prob, rel=1e-4)
    assert len(serialize(inspection, translator)) > inspection.attention["cross"].numel()


def test_there_are_no_heads_to_switch_off(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="have no heads to switch off"):
        inspect_translation(translator, InspectionRequest(text=TEXT, off=["cross.1.1"]))
