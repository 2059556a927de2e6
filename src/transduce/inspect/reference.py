"""A given translation, as the model sees it: the probability and the rank of each token."""

from dataclasses import dataclass

import torch

from transduce.data.batch import Batch
from transduce.errors import DataError
from transduce.inspect.inspection import MAX_TOKENS, inspected_model, inspected_part
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.translation.translator import Translator


@dataclass(frozen=True)
class ReferenceToken:
    """A token of a given translation, or its end marker."""

    token: int
    piece: str
    log_prob: float
    rank: int
    """1 if no token was more probable."""
    best: str
    """The most probable token there."""
    best_log_prob: float


@torch.inference_mode()
def score_reference(translator: Translator, text: str, reference: str, to: str | None = None) -> list[ReferenceToken]:
    """The probability and the rank of each token of a translation of a text, and of its end marker."""
    part, model, tokenizer = (
        inspected_part(translator, text, to),
        inspected_model(translator),
        translator.tokenizer.target,
    )
    tokens = tokenizer.encode(reference.strip())
    if not tokens:
        raise DataError("the reference is empty")
    longest = MAX_TOKENS if model.longest is None else min(MAX_TOKENS, model.longest - 1)
    if len(tokens) > longest:
        raise DataError(f"the reference has {len(tokens):,} tokens; at most {longest} can be inspected: shorten it")
    batch = Batch.of(model.device, src=[[*part.tokens, EOS]], tgt=[[BOS, *tokens]])
    log_prob_TV = model.logits(model(batch)).float().log_softmax(-1)
    written = [*tokens, EOS]
    written_T1 = torch.tensor(written, device=log_prob_TV.device)[:, None]
    written_log_prob_T1 = log_prob_TV.gather(1, written_T1)
    rank_T = 1 + (log_prob_TV > written_log_prob_T1).sum(1)
    best_log_prob_T, best_T = log_prob_TV.max(1)
    columns = zip(
        written,
        tokenizer.pieces(written),
        written_log_prob_T1[:, 0].tolist(),
        rank_T.tolist(),
        tokenizer.pieces(best_T.tolist()),
        best_log_prob_T.tolist(),
        strict=True,
    )
    return [ReferenceToken(*row) for row in columns]
