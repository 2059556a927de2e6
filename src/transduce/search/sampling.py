"""One token at a time without looking back: the likeliest (greedy), or one drawn from the distribution."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.search.decoder import NEVER_SAID, Decoder, Hypothesis, forbid_repeats, length_penalty
from transduce.text.tokenizer import BOS, EOS

Choose = Callable[[Tensor], Tensor]
"""Log-probabilities (R, V) to a token (R)."""


def likeliest(log_prob_RV: Tensor) -> Tensor:
    """Greedy choice."""
    return log_prob_RV.argmax(-1)


def sampler(temperature: float, top_k: int, top_p: float, seed: int, device: torch.device | str) -> Choose:
    """A random choice among the `top_k` likeliest (0: all) that together make up `top_p`, at a temperature."""
    generator = torch.Generator(device).manual_seed(seed)

    def choose(log_prob_RV: Tensor) -> Tensor:
        scores_RV = log_prob_RV / temperature
        if top_k:
            smallest_R1 = scores_RV.topk(min(top_k, scores_RV.shape[1]))[0][:, -1:]
            scores_RV = scores_RV.masked_fill(scores_RV < smallest_R1, -torch.inf)
        if top_p < 1:
            sorted_RV, order_RV = scores_RV.softmax(-1).sort(descending=True)
            before_RV = sorted_RV.cumsum(-1) - sorted_RV
            outside_RV = torch.zeros_like(before_RV, dtype=torch.bool).scatter(
                1, order_RV, (before_RV >= top_p) & (before_RV > 0)
            )
            scores_RV = scores_RV.masked_fill(outside_RV, -torch.inf)
        return torch.multinomial(scores_RV.softmax(-1), 1, generator=generator)[:, 0]

    return choose


@torch.inference_mode()
def roll_out(
    decoder: Decoder,
    source: Any,
    limits: Sequence[int],
    choose: Choose,
    *,
    alpha: float,
    rows: int = 1,
    no_repeat: int = 0,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """`rows` outputs for every sentence, best first; limits and prefixes as in `beam_search`."""
    sentences = list(range(len(limits)))  # those still open; tensors below have a row of W outputs for each
    limit_B1 = torch.tensor(limits, device=device)[:, None]
    said_BWT = torch.full((len(limits), rows, max(limits) + 1), EOS, device=device)
    log_prob_BW = torch.zeros(len(limits), rows, device=device)
    ended_BW = torch.zeros(len(limits), rows, dtype=torch.bool, device=device)
    results: list[list[Hypothesis]] = [[] for _ in limits]
    row_BW = torch.arange(len(limits), device=device)[:, None].expand(-1, rows)
    state = decoder.reorder(decoder.start(source), row_BW)
    token_BW = torch.full_like(row_BW, BOS)

    for t in range(max(limits) + 1):
        logits_RV, state = decoder.step(token_BW.flatten(), state)
        log_prob_RV = logits_RV.float().log_softmax(-1)
        allowed_RV = log_prob_RV.index_fill(1, torch.tensor(NEVER_SAID, device=device), -torch.inf)
        if no_repeat:
            forbid_repeats(allowed_RV, said_BWT.flatten(0, 1), t, no_repeat)
        token_BW = choose(allowed_RV).view(len(sentences), rows)
        if prefixes:
            _force(token_BW, [prefixes[sentence] for sentence in sentences], t)
        token_BW = token_BW.masked_fill(ended_BW | (limit_B1 == t), EOS)
        said_BWT[:, :, t] = token_BW
        gained_BW = log_prob_RV.gather(1, token_BW.view(-1, 1)).view_as(token_BW)
        log_prob_BW = log_prob_BW + gained_BW.masked_fill(ended_BW, 0.0)
        ended_BW = ended_BW | (token_BW == EOS)

        done = ended_BW.all(dim=1).tolist()
        if any(done):
            for place in (i for i, is_done in enumerate(done) if is_done):
                results[sentences[place]] = _ranked(said_BWT[place], log_prob_BW[place], alpha)
            left = [i for i, is_done in enumerate(done) if not is_done]
            if not left:
                break
            left_B = torch.tensor(left, device=device)
            state = decoder.reorder(state, left_B[:, None] * rows + torch.arange(rows, device=device))
            sentences = [sentences[i] for i in left]
            limit_B1, said_BWT, log_prob_BW, ended_BW, token_BW = (
                x.index_select(0, left_B) for x in (limit_B1, said_BWT, log_prob_BW, ended_BW, token_BW)
            )
    return results


def _force(token_BW: Tensor, prefixes: list[Sequence[int]], t: int) -> None:
    for place, prefix in enumerate(prefixes):
        if t < len(prefix):
            token_BW[place] = prefix[t]


def _ranked(said_WT: Tensor, log_prob_W: Tensor, alpha: float) -> list[Hypothesis]:
    hypotheses = []
    for said, log_prob in zip(said_WT.tolist(), log_prob_W.tolist(), strict=True):
        tokens = said[: said.index(EOS)]
        hypotheses.append(Hypothesis(tokens, log_prob, log_prob / length_penalty(len(tokens) + 1, alpha)))
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
