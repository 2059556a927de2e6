"""A model folder and its torch module are one type for their users."""

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import small_model

from transduce.fast.native.engine import NativeEngine
from transduce.fast.native.shortlist import model_shortlist
from transduce.models.any_model import AnyModel
from transduce.models.config import DecoderOnlyConfig
from transduce.models.decoder_only import DecoderOnly
from transduce.models.folder import load_model, read_model, save_model
from transduce.models.model import Model
from transduce.search.options import SearchConfig


def facts(model: AnyModel) -> list[Any]:
    options = [SearchConfig(), SearchConfig(sample=True), SearchConfig(shortlist=True)]
    return [
        *(model.config, model.vocab_size, model.longest, model.device_type, model.generates, model.aligns),
        *(NativeEngine.supports(model, search) for search in options),
        model_shortlist(model),
    ]


def decoder_only(vocab_size: int) -> Model:
    return DecoderOnly(DecoderOnlyConfig(layers=1, d_model=16, d_ff=16, num_heads=2), vocab_size)


@pytest.mark.parametrize("kind", [{}, {"positions": "learned", "max_positions": 40}, {"norm_type": "rms"}, None])
def test_they_tell_the_same(kind: dict[str, Any] | None, toy_tokenizer: Any, tmp_path: Path) -> None:
    size = toy_tokenizer.vocab_size
    save_model(
        tmp_path, decoder_only(size) if kind is None else small_model(vocab_size=size, **kind), toy_tokenizer, {}
    )
    assert facts(read_model(tmp_path)) == facts(load_model(tmp_path).model)


def test_the_module_is_built_once_and_only_when_it_is_needed(toy_tokenizer: Any, tmp_path: Path) -> None:
    save_model(tmp_path, small_model(vocab_size=toy_tokenizer.vocab_size), toy_tokenizer, {})
    folder = read_model(tmp_path)
    facts(folder)
    assert not folder.is_built
    assert folder.module() is folder.module()
    assert folder.is_built
    loaded = load_model(tmp_path).model.state_dict()
    assert all(torch.equal(weight, loaded[name]) for name, weight in folder.module().state_dict().items())
