"""The average of checkpoints."""

from pathlib import Path

import torch
from checkpoints import V, assert_bitwise_equal, save_steps
from helpers import small_model
from safetensors.torch import load_file

from transduce.models.encoder_decoder import EncoderDecoder
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training.checkpoint import list_checkpoints, load_average


def test_averaging_takes_the_mean_of_every_weight(folder: Path, tokenizer: Tokenizer) -> None:
    save_steps(folder, tokenizer, [1, 2, 3, 4])
    last = list_checkpoints(folder)[-3:]
    model = small_model(seed=50, vocab_size=V)
    load_average(model, last)
    weights = [load_file(path / "model.safetensors") for path in last]
    average = model.state_dict()
    assert average.keys() == weights[0].keys()
    for name, x in average.items():
        expected = sum(each[name].double() for each in weights) / 3
        torch.testing.assert_close(x.double(), expected, rtol=1e-6, atol=1e-9)
        assert not torch.equal(x, weights[2][name]), f"{name} is the same in all checkpoints"


def test_the_average_of_one_checkpoint_is_itself(folder: Path, tokenizer: Tokenizer) -> None:
    training = save_steps(folder, tokenizer, [1])
    model: EncoderDecoder = small_model(seed=50, vocab_size=V)
    load_average(model, list_checkpoints(folder))
    assert_bitwise_equal(dict(model.state_dict()), dict(training.model.state_dict()))
