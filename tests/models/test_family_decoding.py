"""Members of the family, token by token with a KV cache, against their complete forward pass."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers_family import bart, gpt2, llama, marian, ours_of, relative, t5, texts
from transformers_models import assert_close, randomized

from transduce.data.batch import Batch, Stream
from transduce.fast.native.language_model import language_model_limits
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.segments import pack_tokens


@pytest.mark.parametrize("make", [gpt2, llama, *(partial(relative, name) for name in ("mistral", "gemma2", "gemma"))])
@pytest.mark.parametrize("lengths", [[7, 3, 9], [4, 4], [1, 5], [1, 1]])
def test_generation_with_a_prefilled_cache(make: Callable[[], Any], lengths: list[int], tmp_path: Path) -> None:
    """Prompts of different lengths, then some tokens; rows are copied and removed on the way."""
    ours = ours_of(randomized(make()), tmp_path)
    assert isinstance(ours, DecoderOnly)
    prompts = texts(2, lengths)
    rows = prompts
    state = ours.start(Stream(*pack_tokens([prompt[:-1] for prompt in prompts])))
    for new in range(4):
        logits_RV, state = ours.step(torch.tensor([row[-1] for row in rows]), state)
        for row, logits_V in zip(rows, logits_RV, strict=True):
            assert_close(logits_V, ours.logits(ours(Batch.of(text=[row])))[-1])
        if new == 1:
            state = ours.reorder(state, torch.tensor([[1, 1], [0, 0]]))  # the first two prompts, two rows for each
            rows = [rows[1], rows[1], rows[0], rows[0]]
        rows = [[*row, 5 + new + number] for number, row in enumerate(rows)]


@pytest.mark.parametrize("make", [bart, marian, t5])
def test_encoder_decoder_step_by_step(make: Callable[[], Any], tmp_path: Path) -> None:
    ours = ours_of(randomized(make()), tmp_path)
    assert isinstance(ours, EncoderDecoder)
    sources, targets = texts(5), texts(6, [6, 6, 6])
    complete_BTV = ours.logits(ours(Batch.of(src=sources, tgt=targets))).unflatten(0, (3, 6))
    state = ours.start(Batch.of(src=sources)["src"])
    for t in range(6):
        logits_RV, state = ours.step(torch.tensor([target[t] for target in targets]), state)
        assert_close(logits_RV, complete_BTV[:, t])


@pytest.mark.parametrize(
    ("style", "reason"),
    [
        ("mistral", "no attention to a window (model.window)"),
        ("qwen3", "no norms of queries and keys (model.qk_norm)"),
        ("gemma2", "no bounds of scores or logits (model.score_cap, model.logit_cap)"),
    ],
)
def test_engine_native_refuses_what_it_does_not_compute(style: str, reason: str, tmp_path: Path) -> None:
    ours = ours_of(randomized(relative(style)), tmp_path)
    assert isinstance(ours.config, DecoderOnlyConfig)
    config = replace(ours.config, window=None, global_every=0) if style == "gemma2" else ours.config
    assert language_model_limits(config) == reason
