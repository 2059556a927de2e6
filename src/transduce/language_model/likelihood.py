"""The probability of texts by a language model, which may be longer than its context."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from transduce.data.batch import BATCH_TOKENS, Batch, in_batches
from transduce.models.decoder_only import DecoderOnly
from transduce.models.likelihood import predictions
from transduce.models.model import Model
from transduce.tokenizers.tokenizer import BOS

_ROWS = 256
"""Tokens whose probability is computed in one step."""


@torch.inference_mode()
def text_log_probs(
    model: Model,
    texts: Sequence[Sequence[int]],
    context: int,
    stride: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> Generator[None, None, list[list[float]]]:
    """The log-probability of each token of texts, by a language model that reads at most `context` tokens at once.

    This yields after each layer of each batch, so that the caller can do other things.

    A longer text is read in windows that begin every `stride` tokens (default: half of the context). Each token is
    scored in the first window that has it, so `context` - `stride` tokens or more are before it, unless the text has
    fewer.
    """
    stride = stride or max(1, context // 2)
    results = [[0.0] * len(text) for text in texts]
    windows = [
        (number, first, start, end)
        for number, text in enumerate(texts)
        for first, start, end in _windows(len(text), context, stride)
    ]
    for chosen in in_batches(windows, [end - first for _, first, _, end in windows], batch_tokens):
        inputs = [
            [*([BOS] if first == 0 else []), *texts[number][max(0, first - 1) : end - 1]]
            for number, first, _, end in chosen
        ]
        starts = np.cumsum([0, *map(len, inputs)])
        places = [
            np.arange(start - first, end - first) + offset
            for (_, first, start, end), offset in zip(chosen, starts, strict=False)
        ]
        labels = [token for number, _, start, end in chosen for token in texts[number][start:end]]
        batch = replace(
            Batch.of(model.device, text=inputs), positions_L=torch.from_numpy(np.concatenate(places)).to(model.device)
        )
        for hidden_LD in model.forward_steps(batch) if isinstance(model, DecoderOnly) else [model(batch)]:  # noqa: B007
            yield
        log_probs, label_L = [], torch.tensor(labels, device=model.device)
        for hidden_RD, label_R in zip(hidden_LD.split(_ROWS), label_L.split(_ROWS), strict=True):
            log_probs.append(predictions(model, hidden_RD, label_R)[0])
            yield
        for (number, _, start, end), log_prob_T in zip(
            chosen, torch.cat(log_probs).split([len(p) for p in places]), strict=True
        ):
            results[number][start:end] = log_prob_T.tolist()
    return results


def _windows(tokens: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """The first input of each window of a text, and the range of tokens that are scored in it.

    Input n of a text is the token before token n; input 0 is BOS.
    """
    first = scored = 0
    while scored < tokens:
        end = min(first + context, tokens)
        yield first, scored, end
        first, scored = first + stride, end
