"""Log-probabilities of given outputs, by one forward pass over packed batches."""

from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional as F

from transduce.data.batch import Batch
from transduce.models.model import Model
from transduce.text.tokenizer import BOS, EOS

_BATCH_TOKENS = 4096
_LOGITS = 1 << 24
"""Logits in memory at the same time."""


@torch.inference_mode()
def token_log_probs(model: Model, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
    """The log-probability of each target token and of the end marker, for pairs of source and target tokens."""
    results: list[list[float]] = [[] for _ in pairs]
    for numbers in _batches(pairs):
        sources, targets = zip(*(pairs[number] for number in numbers), strict=True)
        labels = [[*target, EOS] for target in targets]
        batch = Batch.of(model.device, src=[[*src, EOS] for src in sources], tgt=[[BOS, *tgt] for tgt in targets])
        label_L = torch.tensor([label for sequence in labels for label in sequence], device=model.device)
        rows = max(1, _LOGITS // model.vocab_size)
        chunks = zip(model(batch).split(rows), label_L.split(rows), strict=True)
        log_prob_L = torch.cat(
            [
                F.linear(hidden_LD, model.output_weight_VD).float().log_softmax(-1).gather(1, part_L[:, None])[:, 0]
                for hidden_LD, part_L in chunks
            ]
        )
        for number, own in zip(numbers, log_prob_L.split([len(sequence) for sequence in labels]), strict=True):
            results[number] = own.tolist()
    return results


def _batches(pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[list[int]]:
    """Indices of pairs of similar length."""
    batch: list[int] = []
    tokens = 0
    for number in sorted(range(len(pairs)), key=lambda n: [len(side) for side in reversed(pairs[n])]):
        longer = max(map(len, pairs[number])) + 1
        if batch and tokens + longer > _BATCH_TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append(number)
        tokens += longer
    if batch:
        yield batch
