"""The three calls of a model that generates: start, step and reorder, against the forward pass."""

import random

import pytest
import torch
from helpers import logits, packed_stream, random_sentences, small_model
from table_decoder import (
    BOS,
    EOS,
    assert_same_outputs,
    penalty,
)  # fmt: skip
from torch import Tensor

from transduce.data.batch import Batch
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.search.beam import beam_search

V = 23
SOURCES = random_sentences([5, 1, 8, 3], V, seed=1)
SETTINGS = {
    "post-norm": {"norm": "post"},
    "pre-norm": {"norm": "pre"},
    "learned positions": {"positions": "learned"},
    "d_k unlike d_v": {"d_k": 3, "d_v": 7},
    "few positions at first": {"max_positions": 4},
}
EACH_SETTING = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def full_logits(model: EncoderDecoder, sources: list[list[int]], said: list[list[int]]) -> tuple[Tensor, ...]:
    """The logits after each token that was said, from one forward pass; one (T, V) a sentence."""
    model.embedding.positions.require(max(map(len, [*sources, *said])))
    hidden_MD = model(Batch.of(src=sources, tgt=said))
    return logits(model, hidden_MD).split([len(sentence) for sentence in said])


@EACH_SETTING
@torch.inference_mode()
def test_steps_give_the_logits_of_the_forward_pass(settings: dict[str, object]) -> None:
    model = small_model(seed=2, **settings)
    targets = [[BOS, *said] for said in random_sentences([40] * len(SOURCES), V, seed=5)]
    state = model.start(packed_stream(SOURCES))
    stepped = []
    for token_R in torch.tensor(targets).T:
        logits_RV, state = model.step(token_R, state)
        stepped.append(logits_RV)
    stepped_RTV = torch.stack(stepped, dim=1)
    for found_TV, expected_TV in zip(stepped_RTV, full_logits(model, SOURCES, targets), strict=True):
        torch.testing.assert_close(found_TV, expected_TV, rtol=1e-4, atol=1e-4)


@EACH_SETTING
@torch.inference_mode()
def test_steps_after_reordering_give_the_logits_of_the_forward_pass(settings: dict[str, object]) -> None:
    """Beams grow, their rows are permuted and doubled, sentences leave; across a growth of the cache (at 32)."""
    model = small_model(seed=3, **settings)
    draw = random.Random(4)
    sentences = list(range(len(SOURCES)))
    histories = [[BOS] for _ in SOURCES]
    width = 1
    state = model.start(packed_stream(SOURCES))
    for t in range(36):
        logits_RV, state = model.step(torch.tensor([history[-1] for history in histories]), state)
        sources = [SOURCES[sentence] for sentence in sentences for _ in range(width)]
        expected_RV = torch.stack([logits_TV[-1] for logits_TV in full_logits(model, sources, histories)])
        torch.testing.assert_close(logits_RV, expected_RV, rtol=1e-4, atol=1e-4)

        kept = list(range(len(sentences)))
        if t in (3, 30):
            kept.remove({3: 1, 30: 0}[t])
        new_width = {0: 3, 10: 2, 20: 4}.get(t, width)
        index = [[place * width + draw.randrange(width) for _ in range(new_width)] for place in kept]
        state = model.reorder(state, torch.tensor(index))
        histories = [[*histories[row], draw.randrange(4, V)] for rows in index for row in rows]
        sentences, width = [sentences[place] for place in kept], new_width


@torch.inference_mode()
def test_searching_with_a_model_scores_outputs_as_the_forward_pass_does_and_each_sentence_as_alone() -> None:
    model = small_model(seed=6)
    limits = [9, 3, 12, 6]
    together = beam_search(model, packed_stream(SOURCES), limits, beam=4, alpha=0.6, nbest=2)
    for source, limit, group in zip(SOURCES, limits, together, strict=True):
        assert_same_outputs([group], beam_search(model, packed_stream([source]), [limit], beam=4, alpha=0.6, nbest=2))
        for hypothesis in group:
            (logits_TV,) = full_logits(model, [source], [[BOS, *hypothesis.tokens]])
            log_prob_TV = logits_TV.log_softmax(-1)
            said = [*hypothesis.tokens, EOS]
            log_prob = sum(log_prob_TV[t, token].item() for t, token in enumerate(said))
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-3)
            assert hypothesis.score == pytest.approx(log_prob / penalty(len(said), 0.6), abs=1e-3)
