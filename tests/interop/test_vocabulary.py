"""Reordering a vocabulary: the probabilities of all original tokens stay the same."""

import dataclasses

import pytest
import torch
from torch import Tensor

from transduce.data.batch import Batch
from transduce.errors import ModelError
from transduce.interop.imported_tokenizers import TokenOrder
from transduce.interop.vocabulary import reorder_vocabulary
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.encoder_only import EncoderOnlyConfig
from transduce.models.model import Model
from transduce.models.registry import create_model
from transduce.models.transformer import TransformerConfig
from transduce.tokenizers.tokenizer import BOS, EOS, PAD, UNK

V = 40
SIZES = {"d_model": 16, "d_ff": 24, "num_heads": 2, "dropout": 0.0}
ORDERS = {
    "bert": (TokenOrder((0, 30, 31, 32), V), []),
    "gpt2": (TokenOrder((39, 39, 39, 39), V), [PAD, UNK, BOS]),
    "marian": (TokenOrder((39, 1, 39, 0), V), [BOS]),
    "llama": (TokenOrder((2, 0, 1, 2), V), [PAD]),
    "ours": (TokenOrder((0, 1, 2, 3), V), []),
}
CONFIGS: list[TransformerConfig] = [
    DecoderOnlyConfig(**SIZES, layers=2),
    DecoderOnlyConfig(**SIZES, layers=1, tie_output=False),
    EncoderDecoderConfig(**SIZES, encoder_layers=1, decoder_layers=1, output_bias=True),
    EncoderOnlyConfig(**SIZES, layers=1, output_bias=True),
]


def log_probs(model: Model, texts: list[list[int]]) -> Tensor:
    streams = {"src": texts, "tgt": texts} if isinstance(model.config, EncoderDecoderConfig) else {"text": texts}
    with torch.inference_mode():
        return model.logits(model(Batch.of(**streams))).log_softmax(-1)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.architecture)
@pytest.mark.parametrize("name", ORDERS)
def test_probabilities_stay(config: TransformerConfig, name: str) -> None:
    order, copies = ORDERS[name]
    assert order.copies == copies
    torch.manual_seed(0)
    original = create_model(config, V).eval()
    torch.nn.init.normal_(original.output_bias_V) if original.output_bias_V is not None else None
    new_config, weights = reorder_vocabulary((config, original.state_dict()), order)
    assert isinstance(new_config, TransformerConfig)
    assert new_config.output_bias == (config.output_bias or bool(copies))
    model = create_model(new_config, V + len(copies)).eval()
    model.load_state_dict(weights)

    texts = torch.randint(0, V, (3, 6)).tolist()
    expected_LV = log_probs(original, texts)
    ours = [[order.ids[token] for token in text] for text in texts]
    actual_LV = log_probs(model, ours)
    torch.testing.assert_close(actual_LV[:, order.ids], expected_LV)
    assert (actual_LV[:, copies].exp() == 0).all()
    # A copy is embedded like its original.
    replaced = {order.ids[order.markers[copy]]: copy for copy in copies}
    copied = [[replaced.get(token, token) for token in text] for text in ours]
    torch.testing.assert_close(log_probs(model, copied), actual_LV)


def test_order() -> None:
    order = TokenOrder((4, 1, 4, 0), 6)
    assert order.originals == [4, 1, 4, 0, 2, 3, 5]
    assert order.ids == [EOS, UNK, 4, 5, PAD, 6]


def test_a_classifier_gets_no_bias() -> None:
    config = EncoderOnlyConfig(**SIZES, layers=1, classes=3)
    model = create_model(config, V)
    new_config, weights = reorder_vocabulary((config, model.state_dict()), ORDERS["gpt2"][0])
    assert new_config == config
    create_model(config, V + 3).load_state_dict(weights)


def test_wrong_sizes_are_refused() -> None:
    config = DecoderOnlyConfig(**SIZES, layers=1)
    weights = create_model(config, V).state_dict()
    with pytest.raises(ModelError, match="has 40 rows, but the vocabulary has 41 tokens"):
        reorder_vocabulary((config, weights), dataclasses.replace(ORDERS["ours"][0], size=41))
    with pytest.raises(ModelError, match="marker 40 is not one of the 40 tokens"):
        TokenOrder((0, 1, 2, 40), V)
    with pytest.raises(ModelError, match="between 4 and"):
        TokenOrder((0, 1, 2, 3), 10**9)
