"""Greedy search and sampling: each step appends one token to each output."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

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
    length_penalty,
)
from transduce.tokenizers.tokenizer import BOS, EOS

_FIRST_SORTED = 1024
"""Tokens among which the nucleus is looked for before all are sorted."""

Choose = Callable[[Tensor], Tensor]
"""Chooses a token (R) from the log-probabilities (R, V)."""


@runtime_checkable
class GreedyDecoder(Decoder, Protocol):
    """A decoder that can tell the most likely tokens by itself, faster than from the logits."""

    def greedy_step(self, token_R: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """As `step`; returns the most likely token of each row that an output may contain, and its log-probability."""


@runtime_checkable
class GradualDecoder(Decoder, Protocol):
    """A decoder that processes prompts in parts."""

    def start_steps(self, source: Any) -> Iterator[Any]:
        """As `start`, whose result is yielded at last; before, it yields after each part of the work."""


@torch.inference_mode()
def start_steps(decoder: Decoder, source: Any) -> Iterator[Any]:
    """Yields after each part of what `decoder.start` does, and at last its result."""
    if isinstance(decoder, GradualDecoder):
        yield from decoder.start_steps(source)
    else:
        yield decoder.start(source)


def greedy_choice(log_prob_RV: Tensor) -> Tensor:
    return log_prob_RV.argmax(-1)


def sampler(
    temperature: float, top_k: int, top_p: float, seed: int, device: torch.device | str, min_p: float = 0.0
) -> Choose:
    """Sampling at a temperature, from the `top_k` most likely tokens (0: all) and of those from the `top_p` nucleus.

    Of these, tokens with less than `min_p` times the probability of the most likely one are left out. At temperature 0
    the most likely token is taken.
    """
    if temperature == 0:
        return greedy_choice
    generator = torch.Generator(device).manual_seed(seed)

    def choose(log_prob_RV: Tensor) -> Tensor:
        prob_RC, token_RC = (log_prob_RV / temperature).softmax(-1), None
        if top_k or top_p < 1:
            prob_RC, token_RC = _most_likely(prob_RC, top_k, top_p)
        if top_p < 1:
            prob_RC = prob_RC / prob_RC.sum(-1, keepdim=True) if top_k else prob_RC
            before_RC = prob_RC.cumsum(-1) - prob_RC
            prob_RC = prob_RC.masked_fill((before_RC >= top_p) & (before_RC > 0), 0.0)
        if min_p > 0:
            prob_RC = prob_RC.masked_fill(prob_RC < min_p * prob_RC.amax(-1, keepdim=True), 0.0)
        # One random number for each row, instead of one for each token as torch.multinomial draws them.
        sum_RC = prob_RC.double().cumsum(-1)
        drawn_R1 = torch.rand(len(sum_RC), 1, dtype=torch.float64, device=device, generator=generator) * sum_RC[:, -1:]
        chosen_R1 = torch.searchsorted(sum_RC, drawn_R1, right=True).clamp(max=sum_RC.shape[1] - 1)
        return (chosen_R1 if token_RC is None else token_RC.gather(1, chosen_R1))[:, 0]

    return choose


def _most_likely(prob_RV: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """The `top_k` most likely tokens, or as many as have the probability `top_p`: probabilities and ids, sorted."""
    V = prob_RV.shape[1]
    if top_k:
        return prob_RV.topk(min(top_k, V))
    prob_RC, token_RC = prob_RV.topk(min(_FIRST_SORTED, V))
    if bool((prob_RC.sum(-1) < top_p).any()):
        prob_RC, token_RC = prob_RV.sort(descending=True)
    return prob_RC, token_RC


@dataclass
class RollOutStep:
    """The tokens that one step has appended to the outputs of the unfinished sentences, W outputs for each."""

    sentences: list[int]
    """Index of each sentence in the input."""
    token_BW: Tensor
    """The new token of each output; EOS if it was finished before."""
    log_prob_BW: Tensor
    """Its log-probability; 0 if the output was finished before."""
    generated_BWT: Tensor
    """All tokens so far; after them EOS."""
    total_log_prob_BW: Tensor
    """Log-probability of all tokens so far."""
    finished_BW: Tensor
    """Whether the output is finished. Whoever reads the steps may set more of them, in place, to end outputs."""


@torch.inference_mode()
def roll_out_steps(
    decoder: Decoder,
    source: Any,
    limits: Sequence[int],
    choose: Choose,
    *,
    rows: int = 1,
    min_length: int = 0,
    no_repeat: int = 0,
    prefixes: Sequence[Sequence[int]] | None = None,
    constraint: Constraint | None = None,
    symbols: SymbolRule | None = None,
    first: Sequence[int] | None = None,
    state: Any = None,
    device: torch.device | str = "cpu",
) -> Iterator[RollOutStep]:
    """Generate `rows` outputs for each sentence, step by step.

    `first` is the first token that the decoder processes for each sentence; by default BOS. `state` is what the decoder
    has computed for the source; None if it has not.
    """
    sentences = list(range(len(limits)))  # unfinished; the tensors below have W outputs for each of them
    limit_B1 = torch.tensor(limits, device=device)[:, None]
    generated_BWT = torch.full((len(limits), rows, max(limits) + 1), EOS, device=device)
    total_BW = torch.zeros(len(limits), rows, device=device)
    finished_BW = torch.zeros(len(limits), rows, dtype=torch.bool, device=device)
    row_BW = torch.arange(len(limits), device=device)[:, None].expand(-1, rows)
    state = decoder.reorder(decoder.start(source) if state is None else state, row_BW)
    token_BW = torch.tensor(first or [BOS] * len(limits), device=device)[:, None].expand(-1, rows)

    # Prefixes and limits need the log-probability of a given token.
    greedy = choose is greedy_choice and not (no_repeat or min_length or prefixes or constraint or symbols)

    for t in range(max(limits) + 1):
        if greedy and isinstance(decoder, GreedyDecoder) and t < min(limits[sentence] for sentence in sentences):
            token_R, log_prob_R, state = decoder.greedy_step(token_BW.flatten(), state)
            token_BW = token_R.view_as(finished_BW).masked_fill(finished_BW, EOS)
        else:
            logits_RV, state = decoder.step(token_BW.flatten(), state)
            log_prob_RV = logits_RV.float().log_softmax(-1)
            allowed_RV = log_prob_RV.index_fill(1, torch.tensor(NEVER_GENERATED, device=device), -torch.inf)
            if no_repeat:
                block_repeated_ngrams(allowed_RV, generated_BWT.flatten(0, 1), t, no_repeat)
            if symbols:
                symbols.apply(allowed_RV.view(*finished_BW.shape, -1), sentences, generated_BWT[:, :, :t])
            if t < min_length:
                forbid_end(allowed_RV)  # prefixes and limits, which may demand it, apply to the chosen token
            if constraint:
                fits_BWV = constraint.allowed(sentences, generated_BWT[:, :, :t], allowed_RV.shape[1])
                # A finished output may be followed by nothing; it must still have one token to choose from.
                fits_BWV[:, :, EOS] |= finished_BW
                allowed_RV.masked_fill_(~fits_BWV.flatten(0, 1), -torch.inf)
            token_BW = choose(allowed_RV).view(len(sentences), rows)
            if prefixes:
                for index, prefix in enumerate(prefixes[sentence] for sentence in sentences):
                    if t < len(prefix):
                        token_BW[index] = prefix[t]
            token_BW = token_BW.masked_fill(finished_BW | (limit_B1 == t), EOS)
            log_prob_R = log_prob_RV.gather(1, token_BW.view(-1, 1))
        generated_BWT[:, :, t] = token_BW
        log_prob_BW = log_prob_R.view_as(token_BW).masked_fill(finished_BW, 0.0)
        finished_BW = finished_BW | (token_BW == EOS)
        total_BW = total_BW + log_prob_BW
        yield RollOutStep(sentences, token_BW, log_prob_BW, generated_BWT, total_BW, finished_BW)

        done = finished_BW.all(dim=1).tolist()
        if any(done):
            remaining = [i for i, is_done in enumerate(done) if not is_done]
            if not remaining:
                break
            remaining_B = torch.tensor(remaining, device=device)
            state = decoder.reorder(state, remaining_B[:, None] * rows + torch.arange(rows, device=device))
            sentences = [sentences[i] for i in remaining]
            limit_B1, generated_BWT, total_BW, finished_BW, token_BW = (
                x.index_select(0, remaining_B) for x in (limit_B1, generated_BWT, total_BW, finished_BW, token_BW)
            )


def roll_out_search(
    decoder: Decoder, source: Any, limits: Sequence[int], choose: Choose, *, alpha: float, **options: Any
) -> SearchSteps:
    """Rank the outputs of `roll_out_steps` for each sentence, best first; the options are those of `roll_out_steps`."""
    results: list[list[Hypothesis]] = [[] for _ in limits]
    for step in roll_out_steps(decoder, source, limits, choose, **options):
        for index, is_done in enumerate(step.finished_BW.all(dim=1).tolist()):
            if is_done:
                ranked = _ranked(step.generated_BWT[index], step.total_log_prob_BW[index], alpha)
                results[step.sentences[index]] = ranked
        yield
    return results


def _ranked(generated_WT: Tensor, log_prob_W: Tensor, alpha: float) -> list[Hypothesis]:
    hypotheses = []
    for generated, log_prob in zip(generated_WT.tolist(), log_prob_W.tolist(), strict=True):
        tokens = generated[: generated.index(EOS)]
        hypotheses.append(Hypothesis(tokens, log_prob, log_prob / length_penalty(len(tokens) + 1, alpha)))
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
