"""Beam search with a length penalty (section 6.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.search.decoder import NEVER_SAID, Decoder, Hypothesis, forbid_repeats, length_penalty
from transduce.text.tokenizer import BOS, EOS


@dataclass
class BeamState:
    """The beams of the sentences still searched; W rows each, best first."""

    sentence_B: list[int]
    """Which sentence of the input each is."""
    limit_B: Tensor
    """Tokens its output may have."""
    alive_BWT: Tensor
    """Tokens of the unfinished hypotheses."""
    alive_log_prob_BW: Tensor
    """-inf where there are fewer than W."""
    ended_BWT: Tensor
    """Tokens of the best finished hypotheses, the end marker behind them."""
    ended_log_prob_BW: Tensor
    ended_score_BW: Tensor
    """Divided by the length penalty; -inf where there are fewer than W."""

    def keep(self, index: list[int], index_B: Tensor) -> None:
        """Go on with these sentences alone."""
        self.sentence_B = [self.sentence_B[i] for i in index]
        for name in ("limit_B", "alive_BWT", "alive_log_prob_BW", "ended_BWT", "ended_log_prob_BW", "ended_score_BW"):
            setattr(self, name, getattr(self, name).index_select(0, index_B))


@dataclass(frozen=True)
class Extensions:
    """What one step considered: the C best extensions of each sentence's hypotheses, best first."""

    parent_BC: Tensor
    """The row each extends."""
    token_BC: Tensor
    log_prob_BC: Tensor
    """Of all that was said; -inf where nothing was left to say."""
    kept_BW: Tensor
    """Which of the C live on, in the order of the new rows. Of the others, those with the end marker are finished."""


@torch.inference_mode()
def beam_search(
    decoder: Decoder,
    source: Any,
    limits: Sequence[int],
    *,
    beam: int,
    alpha: float,
    nbest: int = 1,
    no_repeat: int = 0,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | str = "cpu",
    watch: Callable[[Extensions], object] | None = None,
) -> list[list[Hypothesis]]:
    """The `nbest` best hypotheses of every sentence, best first.

    Sentence b gets at most limits[b] tokens and starts with prefixes[b]. A sentence is done as soon as nothing alive
    can still overtake what it has finished, so stopping early never changes the result. `watch` sees every step.
    """
    B, W, T = len(limits), beam, max(limits) + 1
    assert 1 <= nbest <= beam
    beams = BeamState(
        sentence_B=list(range(B)),
        limit_B=torch.tensor(limits, device=device),
        alive_BWT=torch.full((B, W, T), EOS, device=device),
        alive_log_prob_BW=torch.full((B, W), -torch.inf, device=device),
        ended_BWT=torch.full((B, W, T), EOS, device=device),
        ended_log_prob_BW=torch.full((B, W), -torch.inf, device=device),
        ended_score_BW=torch.full((B, W), -torch.inf, device=device),
    )
    beams.alive_log_prob_BW[:, 0] = 0.0  # one hypothesis to begin with: nothing said
    results: list[list[Hypothesis]] = [[] for _ in range(B)]
    token_R = torch.full((B * W,), BOS, device=device)
    state = decoder.reorder(decoder.start(source), torch.arange(B, device=device)[:, None].expand(B, W))

    for t in range(T):
        logits_RV, state = decoder.step(token_R, state)
        log_prob_BWV = logits_RV.float().log_softmax(-1).view(len(beams.sentence_B), W, -1)
        _allow(log_prob_BWV, t, beams, prefixes, no_repeat)
        row_BW = _advance(beams, log_prob_BWV, t, alpha, watch)

        done = _finished(beams, t, alpha, nbest)
        if any(done):
            for place in (i for i, is_done in enumerate(done) if is_done):
                results[beams.sentence_B[place]] = _hypotheses(beams, place)[:nbest]
            left = [i for i, is_done in enumerate(done) if not is_done]
            if not left:
                break
            left_B = torch.tensor(left, device=device)
            row_BW = row_BW[left_B]
            beams.keep(left, left_B)
        state = decoder.reorder(state, row_BW)
        token_R = beams.alive_BWT[:, :, t].flatten()
    return results


def _allow(
    log_prob_BWV: Tensor, t: int, beams: BeamState, prefixes: Sequence[Sequence[int]] | None, no_repeat: int
) -> None:
    """Rule out what must not come next: markers, all but the end at the limit, all but the prefix, and repeats.

    A prefix may repeat itself.
    """
    log_prob_BWV[:, :, NEVER_SAID] = -torch.inf
    at_limit_B = beams.limit_B == t
    end_BW = log_prob_BWV[:, :, EOS].clone()
    log_prob_BWV.masked_fill_(at_limit_B[:, None, None], -torch.inf)
    log_prob_BWV[:, :, EOS] = end_BW
    for place, sentence in enumerate(beams.sentence_B if prefixes or no_repeat else ()):
        prefix = prefixes[sentence] if prefixes else ()
        if t < len(prefix):
            forced_W = log_prob_BWV[place, :, prefix[t]].clone()
            log_prob_BWV[place] = -torch.inf
            log_prob_BWV[place, :, prefix[t]] = forced_W
        elif no_repeat:
            forbid_repeats(log_prob_BWV[place], beams.alive_BWT[place], t, no_repeat)


def _advance(
    beams: BeamState, log_prob_BWV: Tensor, t: int, alpha: float, watch: Callable[[Extensions], object] | None = None
) -> Tensor:
    """Extend every hypothesis by its best next tokens; the decoder row (B, W) each new one came from."""
    B, W, V = log_prob_BWV.shape
    # Of the best 2W extensions at most W end a hypothesis, so W live ones always remain.
    total_BWV = beams.alive_log_prob_BW[:, :, None] + log_prob_BWV
    best_BC, flat_BC = total_BWV.view(B, W * V).topk(min(2 * W, W * V), dim=1)
    parent_BC, token_BC = flat_BC // V, flat_BC % V
    history_BCT = beams.alive_BWT.gather(1, parent_BC[:, :, None].expand(-1, -1, beams.alive_BWT.shape[2]))
    history_BCT[:, :, t] = token_BC
    ends_BC = token_BC == EOS

    ended_log_prob_BC = best_BC.masked_fill(~ends_BC, -torch.inf)
    all_scores = torch.cat([beams.ended_score_BW, ended_log_prob_BC / length_penalty(t + 1, alpha)], dim=1)
    beams.ended_score_BW, pick_BW = all_scores.topk(W, dim=1)
    beams.ended_log_prob_BW = torch.cat([beams.ended_log_prob_BW, ended_log_prob_BC], dim=1).gather(1, pick_BW)
    beams.ended_BWT = _pick(torch.cat([beams.ended_BWT, history_BCT], dim=1), pick_BW)

    beams.alive_log_prob_BW, pick_BW = best_BC.masked_fill(ends_BC, -torch.inf).topk(W, dim=1)
    beams.alive_BWT = _pick(history_BCT, pick_BW)
    if watch:
        watch(Extensions(parent_BC, token_BC, best_BC, pick_BW))
    return parent_BC.gather(1, pick_BW) + torch.arange(B, device=parent_BC.device)[:, None] * W


def _finished(beams: BeamState, t: int, alpha: float, nbest: int) -> list[bool]:
    """Whether the n-best of each sentence are final.

    Log-probabilities only fall, so a live hypothesis can at best keep its own and end at the kindest length.
    """
    kindest_B = beams.limit_B + 1 if alpha >= 0 else torch.full_like(beams.limit_B, t + 2)
    bound_B = beams.alive_log_prob_BW[:, 0] / length_penalty(kindest_B, alpha)
    return (beams.ended_score_BW[:, nbest - 1] >= bound_B).tolist()


def _hypotheses(beams: BeamState, place: int) -> list[Hypothesis]:
    rows = zip(
        beams.ended_BWT[place].tolist(),
        beams.ended_log_prob_BW[place].tolist(),
        beams.ended_score_BW[place].tolist(),
        strict=True,
    )
    return [
        Hypothesis(tokens[: tokens.index(EOS)], log_prob, score)
        for tokens, log_prob, score in rows
        if score > -float("inf")
    ]


def _pick(x_BCT: Tensor, pick_BW: Tensor) -> Tensor:
    return x_BCT.gather(1, pick_BW[:, :, None].expand(-1, -1, x_BCT.shape[2]))
