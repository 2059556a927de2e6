"""What could have come next: the model's probabilities, and what each decoder layer would have said (logit lens)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.models.encoder_decoder import EncoderDecoder

LIKELIEST = 10
"""Tokens shown at each place."""
TEMPERATURES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)


@dataclass(frozen=True)
class Guesses:
    """Log-probabilities of the next token at each of T places."""

    token_TC: Tensor
    """The C likeliest, best first."""
    log_prob_TC: Tensor
    written_T: Tensor
    """Of the token that was written there."""


def guess(model: EncoderDecoder, layers_LMD: Sequence[Tensor], written: Sequence[int]) -> tuple[list[Guesses], Tensor]:
    """The guesses of each decoder layer, had it been the last (the last one's are the model's own); and log_sum_TX.

    A layer's vectors go through what follows the stack, the norm of a pre-norm model, and the shared projection.
    log_sum_TX is log Σ p^(1/τ) over the whole vocabulary, τ of TEMPERATURES and p the model's own: under τ, log p
    becomes (log p) / τ minus this.
    """
    layers = []
    for x_MD in layers_LMD:
        log_prob_TV = F.linear(model.decoder_norm(x_MD), model.output_weight_VD).float().log_softmax(-1)
        log_prob_TC, token_TC = log_prob_TV.topk(min(LIKELIEST, log_prob_TV.shape[1]))
        written_T1 = torch.tensor(written, device=log_prob_TV.device)[:, None]
        layers.append(Guesses(token_TC, log_prob_TC, log_prob_TV.gather(1, written_T1)[:, 0]))
    log_sum_TX = torch.stack([(log_prob_TV / temperature).logsumexp(-1) for temperature in TEMPERATURES], dim=1)
    return layers, log_sum_TX
