"""Beam search with a length penalty (section 6.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.search.constraint import Constraint, SymbolRule
from transduce.search.decoder import (
    NEVER_GENERATED,
    Decoder,
    Hypothesis,
    SearchSteps,
    block_repeated_ngrams,
    forbid_end,
    last_result,
    length_penalty,
)
from transduce.tokenizers.tokenizer import BOS, EOS


@dataclass
class BeamState:
    """The beams of the unfinished sentences: W rows each, best first."""

    sentence_B: list[int]
    """Index of each sentence in the input."""
    limit_B: Tensor
    """Maximum number of output tokens."""
    alive_BWT: Tensor
    """Tokens of the unfinished hypotheses."""
    alive_log_prob_BW: Tensor
    """Log-probability of each; -inf in unused rows."""
    finished_BWT: Tensor
    """Tokens of the best finished hypotheses, followed by the end marker."""
    finished_log_prob_BW: Tensor
    finished_score_BW: Tensor
    """Log-probability divided by the length penalty; -inf in unused rows."""

    def keep(self, index: list[int], index_B: Tensor) -> None:
        self.sentence_B = [self.sentence_B[i] for i in index]
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.index_select(0, index_B))


@dataclass(frozen=True)
class Extensions:
    """The C best extensions of each sentence's hypotheses at one step, best first."""

    parent_BC: Tensor
    """The row that each extends."""
    token_BC: Tensor
    log_prob_BC: Tensor
    """Log-probability of all tokens so far; -inf if no token was allowed."""
    kept_BW: Tensor
    """The extensions that become the new rows, in order; of the others, those with the end marker are finished."""


def beam_search(decoder: Decoder, source: Any, limits: Sequence[int], **options: Any) -> list[list[Hypothesis]]:
    """All steps of `beam_search_steps` at once."""
    return last_result(beam_search_steps(decoder, source, limits, **options))


@torch.inference_mode()
def beam_search_steps(
    decoder: Decoder,
    source: Any,
    limits: Sequence[int],
    *,
    beam: int,
    alpha: float,
    nbest: int = 1,
    min_length: int = 0,
    no_repeat: int = 0,
    prefixes: Sequence[Sequence[int]] | None = None,
    constraint: Constraint | None = None,
    symbols: SymbolRule | None = None,
    device: torch.device | str = "cpu",
    on_step: Callable[[Extensions], object] | None = None,
) -> SearchSteps:
    """Search for the `nbest` best hypotheses of each sentence, best first; yields after every step.

    The output of sentence b has at most limits[b] tokens and starts with prefixes[b]. It has at least `min_length`
    tokens, those of the prefix included, unless its limit is lower; 0 is the paper's search. A sentence is done when
    none of its alive hypotheses can still overtake the finished ones, so stopping early never changes the result.
    A `constraint` applies in addition to all of these, and so do `symbols`, except in a prefix. `on_step` is
    called after every step.
    """
    B, W, T = len(limits), beam, max(limits) + 1
    assert 1 <= nbest <= beam
    beams = BeamState(
        sentence_B=list(range(B)),
        limit_B=torch.tensor(limits, device=device),
        alive_BWT=torch.full((B, W, T), EOS, device=device),
        alive_log_prob_BW=torch.full((B, W), -torch.inf, device=device),
        finished_BWT=torch.full((B, W, T), EOS, device=device),
        finished_log_prob_BW=torch.full((B, W), -torch.inf, device=device),
        finished_score_BW=torch.full((B, W), -torch.inf, device=device),
    )
    beams.alive_log_prob_BW[:, 0] = 0.0  # the first step extends one empty hypothesis
    results: list[list[Hypothesis]] = [[] for _ in range(B)]
    token_R = torch.full((B * W,), BOS, device=device)
    state = decoder.reorder(decoder.start(source), torch.arange(B, device=device)[:, None].expand(B, W))

    for t in range(T):
        logits_RV, state = decoder.step(token_R, state)
        log_prob_BWV = logits_RV.float().log_softmax(-1).view(len(beams.sentence_B), W, -1)
        _mask_forbidden(log_prob_BWV, t, beams, prefixes, min_length, no_repeat, symbols)
        if constraint:
            allowed_BWV = constraint.allowed(beams.sentence_B, beams.alive_BWT[:, :, :t], log_prob_BWV.shape[2])
            log_prob_BWV.masked_fill_(~allowed_BWV, -torch.inf)
        row_BW = _advance(beams, log_prob_BWV, t, alpha, on_step)

        done = _is_final(beams, t, alpha, nbest)
        if any(done):
            for index in (i for i, is_done in enumerate(done) if is_done):
                results[beams.sentence_B[index]] = _hypotheses(beams, index)[:nbest]
            remaining = [i for i, is_done in enumerate(done) if not is_done]
            if not remaining:
                break
            remaining_B = torch.tensor(remaining, device=device)
            row_BW = row_BW[remaining_B]
            beams.keep(remaining, remaining_B)
        state = decoder.reorder(state, row_BW)
        token_R = beams.alive_BWT[:, :, t].flatten()
        yield
    return results


def _mask_forbidden(
    log_prob_BWV: Tensor,
    t: int,
    beams: BeamState,
    prefixes: Sequence[Sequence[int]] | None,
    min_length: int,
    no_repeat: int,
    symbols: SymbolRule | None,
) -> None:
    """Set the log-probabilities of tokens that are not allowed next to -inf.

    These are markers, at the limit all tokens but the end marker, within a prefix all tokens but the prefix's, and
    otherwise tokens that would repeat an n-gram, symbols that are not wanted or written, and the end marker before all
    symbols are written and before the minimum length.
    """
    log_prob_BWV[:, :, NEVER_GENERATED] = -torch.inf
    at_limit_B = beams.limit_B == t
    end_BW = log_prob_BWV[:, :, EOS].clone()
    log_prob_BWV.masked_fill_(at_limit_B[:, None, None], -torch.inf)
    log_prob_BWV[:, :, EOS] = end_BW
    for index, sentence in enumerate(beams.sentence_B if prefixes or no_repeat else ()):
        prefix = prefixes[sentence] if prefixes else ()
        if t < len(prefix):
            forced_W = log_prob_BWV[index, :, prefix[t]].clone()
            log_prob_BWV[index] = -torch.inf
            log_prob_BWV[index, :, prefix[t]] = forced_W
        elif no_repeat:
            block_repeated_ngrams(log_prob_BWV[index], beams.alive_BWT[index], t, no_repeat)
    if not (symbols or t < min_length):
        return
    in_prefix = [t < len(prefixes[sentence]) if prefixes else False for sentence in beams.sentence_B]
    exempt_B = at_limit_B | torch.tensor(in_prefix, device=at_limit_B.device)
    if symbols:
        symbols.apply(log_prob_BWV, beams.sentence_B, beams.alive_BWT[:, :, :t], exempt_B)
    if t < min_length:
        forbid_end(log_prob_BWV.flatten(0, 1), exempt_B.repeat_interleave(log_prob_BWV.shape[1]))


def _advance(
    beams: BeamState, log_prob_BWV: Tensor, t: int, alpha: float, on_step: Callable[[Extensions], object] | None = None
) -> Tensor:
    """Extend every hypothesis by its best next tokens; returns the decoder row (B, W) that each new row extends."""
    B, W, V = log_prob_BWV.shape
    # At most W of the best 2W extensions end with the end marker, so at least W alive ones remain.
    total_BWV = beams.alive_log_prob_BW[:, :, None] + log_prob_BWV
    best_BC, flat_BC = total_BWV.view(B, W * V).topk(min(2 * W, W * V), dim=1)
    parent_BC, token_BC = flat_BC // V, flat_BC % V
    history_BCT = beams.alive_BWT.gather(1, parent_BC[:, :, None].expand(-1, -1, beams.alive_BWT.shape[2]))
    history_BCT[:, :, t] = token_BC
    is_end_BC = token_BC == EOS

    finished_log_prob_BC = best_BC.masked_fill(~is_end_BC, -torch.inf)
    all_scores = torch.cat([beams.finished_score_BW, finished_log_prob_BC / length_penalty(t + 1, alpha)], dim=1)
    beams.finished_score_BW, pick_BW = all_scores.topk(W, dim=1)
    beams.finished_log_prob_BW = torch.cat([beams.finished_log_prob_BW, finished_log_prob_BC], dim=1).gather(1, pick_BW)
    beams.finished_BWT = _pick(torch.cat([beams.finished_BWT, history_BCT], dim=1), pick_BW)

    beams.alive_log_prob_BW, pick_BW = best_BC.masked_fill(is_end_BC, -torch.inf).topk(W, dim=1)
    beams.alive_BWT = _pick(history_BCT, pick_BW)
    if on_step:
        on_step(Extensions(parent_BC, token_BC, best_BC, pick_BW))
    return parent_BC.gather(1, pick_BW) + torch.arange(B, device=parent_BC.device)[:, None] * W


def _is_final(beams: BeamState, t: int, alpha: float, nbest: int) -> list[bool]:
    """Whether the n-best of each sentence are final.

    Log-probabilities never increase, so the score of an alive hypothesis is bounded by its log-probability divided by
    the most favourable length penalty.
    """
    length_B = beams.limit_B + 1 if alpha >= 0 else torch.full_like(beams.limit_B, t + 2)
    bound_B = beams.alive_log_prob_BW[:, 0] / length_penalty(length_B, alpha)
    return (beams.finished_score_BW[:, nbest - 1] >= bound_B).tolist()


def _hypotheses(beams: BeamState, index: int) -> list[Hypothesis]:
    rows = zip(
        beams.finished_BWT[index].tolist(),
        beams.finished_log_prob_BW[index].tolist(),
        beams.finished_score_BW[index].tolist(),
        strict=True,
    )
    return [
        Hypothesis(tokens[: tokens.index(EOS)], log_prob, score)
        for tokens, log_prob, score in rows
        if score > -float("inf")
    ]


def _pick(x_BCT: Tensor, pick_BW: Tensor) -> Tensor:
    return x_BCT.gather(1, pick_BW[:, :, None].expand(-1, -1, x_BCT.shape[2]))
