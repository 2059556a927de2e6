"""What a torch module predicts about outputs that exist, by one forward pass over packed batches."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from transduce.data.batch import Batch
from transduce.errors import ModelError
from transduce.models.forced_decoding import Attention, Pairs, TokenStatistics
from transduce.models.model import Model
from transduce.nn.observe import observe_attention
from transduce.tokenizers.tokenizer import BOS, EOS

_BATCH_TOKENS = 4096
_ALIGNED_TOGETHER = 64
_LOGITS = 1 << 24
"""Logits in memory at the same time."""
T = TypeVar("T")


class ModuleReader:
    """An `OutputReader` of a torch module."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.aligns = model.aligns

    def attention_weights(self, pairs: Pairs) -> Iterator[Attention]:
        for start in range(0, len(pairs), _ALIGNED_TOGETHER):
            chunk = pairs[start : start + _ALIGNED_TOGETHER]
            sources, outputs = zip(*chunk, strict=True)
            weights_BTS = cross_attention(self._model, sources, outputs)
            for weights_TS, (source, output) in zip(weights_BTS, chunk, strict=True):
                yield weights_TS[: len(output) + 1, : len(source) + 1].tolist()

    @torch.inference_mode()
    def token_log_probs(self, pairs: Pairs) -> list[list[float]]:
        results: list[list[float]] = [[] for _ in pairs]
        for numbers in _batches(pairs):
            hidden_LD, label_L, lengths = _forward(self._model, [pairs[number] for number in numbers])
            log_probs = [_predictions(*chunk)[0] for chunk in _logits(self._model, hidden_LD, label_L)]
            for number, log_prob_T in zip(numbers, torch.cat(log_probs).split(lengths), strict=True):
                results[number] = log_prob_T.tolist()
        return results

    @torch.inference_mode()
    def token_statistics(self, pairs: Pairs) -> list[TokenStatistics]:
        results: dict[int, TokenStatistics] = {}
        attention = self._model.alignment_attention
        for numbers in _batches(pairs):
            with observe_attention(attention or nn.Identity()) as recorded:
                hidden_LD, label_L, lengths = _forward(self._model, [pairs[number] for number in numbers])
            predictions = [_predictions(*chunk) for chunk in _logits(self._model, hidden_LD, label_L)]
            highest = [torch.zeros(length) for length in lengths]
            for weights_BHTS in recorded.values():
                highest_BT = weights_BHTS.mean(dim=1).amax(dim=-1)
                highest = [weight_T[:length] for weight_T, length in zip(highest_BT, lengths, strict=True)]
            split = (torch.cat(chunks).split(lengths) for chunks in zip(*predictions, strict=True))
            for number, *statistics in zip(numbers, *split, highest, strict=True):
                results[number] = TokenStatistics(*(values_T.tolist() for values_T in statistics))
        return [results[number] for number in range(len(pairs))]


@torch.inference_mode()
def cross_attention(model: Model, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> Tensor:
    """The attention weights (B, T, S) of the output tokens and end marker over the source tokens and end marker.

    They are the mean over the heads of one layer, `Model.alignment_attention`.
    """
    attention = model.alignment_attention
    if attention is None:
        raise ModelError(f"a model of the architecture {model.config.architecture} has no cross-attention to align by")
    with observe_attention(attention) as recorded:
        targets = [[BOS, *output] for output in outputs]
        model(Batch.of(model.device, src=[[*source, EOS] for source in sources], tgt=targets))
    (weights_BHTS,) = recorded.values()
    return weights_BHTS.mean(dim=1)


@torch.inference_mode()
def text_log_probs(
    model: Model,
    texts: Sequence[Sequence[int]],
    context: int,
    stride: int | None = None,
    batch_tokens: int = _BATCH_TOKENS,
) -> Generator[None, None, list[list[float]]]:
    """The log-probability of each token of texts, by a language model that reads at most `context` tokens at once.

    This yields after each batch, so that the caller can do other things.

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
    for chosen in _in_batches(windows, [end - first for _, first, _, end in windows], batch_tokens):
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
        chunks = _logits(model, model(batch), torch.tensor(labels, device=model.device))
        log_prob_L = torch.cat([_predictions(*chunk)[0] for chunk in chunks])
        for (number, _, start, end), log_prob_T in zip(chosen, log_prob_L.split([len(p) for p in places]), strict=True):
            results[number][start:end] = log_prob_T.tolist()
        yield
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


def _forward(model: Model, pairs: Pairs) -> tuple[Tensor, Tensor, list[int]]:
    """The hidden vectors and labels of a batch, and the number of labels of each pair."""
    labels = [[*target, EOS] for _, target in pairs]
    batch = Batch.of(
        model.device, src=[[*source, EOS] for source, _ in pairs], tgt=[[BOS, *target] for _, target in pairs]
    )
    label_L = torch.tensor([label for sequence in labels for label in sequence], device=model.device)
    return model(batch), label_L, [len(sequence) for sequence in labels]


def _logits(model: Model, hidden_LD: Tensor, label_L: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The logits and the labels, for some rows at a time."""
    rows = max(1, _LOGITS // model.vocab_size)
    for part_RD, part_R in zip(hidden_LD.split(rows), label_L.split(rows), strict=True):
        yield model.logits(part_RD).float(), part_R


def _predictions(logits_RV: Tensor, label_R: Tensor) -> tuple[Tensor, Tensor]:
    """The log-probability of each label, and the entropy of each row."""
    p_RV = logits_RV.softmax(-1)
    # log sum exp, from the largest term: softmax has a fast kernel on every CPU, exp and logsumexp do not.
    normaliser_R = logits_RV.amax(-1) - p_RV.amax(-1).log()
    log_prob_R = logits_RV.gather(1, label_R[:, None])[:, 0] - normaliser_R
    return log_prob_R, normaliser_R - torch.linalg.vecdot(p_RV, logits_RV)


def _batches(pairs: Pairs) -> Iterator[list[int]]:
    """Indices of pairs of similar length."""
    numbers = sorted(range(len(pairs)), key=lambda n: [len(side) for side in reversed(pairs[n])])
    return _in_batches(numbers, [max(map(len, pairs[number])) + 1 for number in numbers])


def _in_batches(items: Sequence[T], sizes: Sequence[int], most_tokens: int = _BATCH_TOKENS) -> Iterator[list[T]]:
    """Consecutive items with at most this number of tokens together, at least one."""
    batch: list[T] = []
    tokens = 0
    for item, size in zip(items, sizes, strict=True):
        if batch and tokens + size > most_tokens:
            yield batch
            batch, tokens = [], 0
        batch.append(item)
        tokens += size
    if batch:
        yield batch
