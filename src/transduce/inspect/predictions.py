"""Next-token predictions of the model, and of each decoder layer (logit lens)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.models.model import Model

TOP_TOKENS = 10
"""Number of most probable tokens kept for each position."""
TEMPERATURES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)


@dataclass(frozen=True)
class Predictions:
    """Log-probabilities of the next token at each of T positions."""

    token_TC: Tensor
    """The C most probable tokens, best first."""
    log_prob_TC: Tensor
    """Their log-probabilities."""
    written_T: Tensor
    """Log-probability of the token that was written."""


def logit_lens(model: Model, hiddens_LMD: Sequence[Tensor], written: Sequence[int]) -> tuple[list[Predictions], Tensor]:
    """The predictions of each decoder layer as if it were the last one, and log_sum_TX for other temperatures.

    The hidden vectors of each layer go through the output projection; those of the last layer are the model's own
    predictions. log_sum_TX is log Σ p^(1/τ) over the vocabulary, for each τ in
    TEMPERATURES and the model's own probabilities p: with temperature τ, log p becomes (log p) / τ minus this.
    """
    layers = []
    for hidden_MD in hiddens_LMD:
        log_prob_TV = model.logits(hidden_MD).float().log_softmax(-1)
        log_prob_TC, token_TC = log_prob_TV.topk(min(TOP_TOKENS, log_prob_TV.shape[1]))
        written_T1 = torch.tensor(written, device=log_prob_TV.device)[:, None]
        layers.append(Predictions(token_TC, log_prob_TC, log_prob_TV.gather(1, written_T1)[:, 0]))
    log_sum_TX = torch.stack([(log_prob_TV / temperature).logsumexp(-1) for temperature in TEMPERATURES], dim=1)
    return layers, log_sum_TX
