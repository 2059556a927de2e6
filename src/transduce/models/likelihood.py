"""What a torch module predicts about outputs that exist, by one forward pass over packed batches."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from transduce.data.batch import Batch, in_batches
from transduce.errors import ModelError
from transduce.models.forced_decoding import Attention, Pairs, TokenStatistics
from transduce.models.model import Model
from transduce.nn.observe import observe_attention
from transduce.tokenizers.tokenizer import BOS, EOS

_ALIGNED_TOGETHER = 64
_LOGITS = 1 << 24
"""Logits in memory at the same time."""


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
            log_prob_L, _ = predictions(self._model, hidden_LD, label_L)
            for number, log_prob_T in zip(numbers, log_prob_L.split(lengths), strict=True):
                results[number] = log_prob_T.tolist()
        return results

    @torch.inference_mode()
    def token_statistics(self, pairs: Pairs) -> list[TokenStatistics]:
        results: dict[int, TokenStatistics] = {}
        attention = self._model.alignment_attention
        for numbers in _batches(pairs):
            with observe_attention(attention or nn.Identity()) as recorded:
                hidden_LD, label_L, lengths = _forward(self._model, [pairs[number] for number in numbers])
            highest = [torch.zeros(length) for length in lengths]
            for weights_BHTS in recorded.values():
                highest_BT = self._model.pair_weights(weights_BHTS).mean(dim=1).amax(dim=-1)
                highest = [weight_T[:length] for weight_T, length in zip(highest_BT, lengths, strict=True)]
            split = (values_L.split(lengths) for values_L in predictions(self._model, hidden_LD, label_L))
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
    return model.pair_weights(weights_BHTS).mean(dim=1)


def _forward(model: Model, pairs: Pairs) -> tuple[Tensor, Tensor, list[int]]:
    """The hidden vectors and labels of a batch, and the number of labels of each pair."""
    labels = [[*target, EOS] for _, target in pairs]
    batch = Batch.of(
        model.device, src=[[*source, EOS] for source, _ in pairs], tgt=[[BOS, *target] for _, target in pairs]
    )
    label_L = torch.tensor([label for sequence in labels for label in sequence], device=model.device)
    return model(batch), label_L, [len(sequence) for sequence in labels]


def predictions(model: Model, hidden_LD: Tensor, label_L: Tensor) -> tuple[Tensor, Tensor]:
    """The log-probability of each label, and the entropy of the distribution that it is predicted by."""
    rows = max(1, _LOGITS // model.vocab_size)
    log_probs, entropies = [], []
    for hidden_RD, label_R in zip(hidden_LD.split(rows), label_L.split(rows), strict=True):
        logits_RV = model.logits(hidden_RD).float()
        p_RV = logits_RV.softmax(-1)
        # log sum exp, from the largest term: softmax has a fast kernel on every CPU, exp and logsumexp do not.
        normaliser_R = logits_RV.amax(-1) - p_RV.amax(-1).log()
        log_probs.append(logits_RV.gather(1, label_R[:, None])[:, 0] - normaliser_R)
        entropies.append(normaliser_R - torch.linalg.vecdot(p_RV, logits_RV))
    return torch.cat(log_probs), torch.cat(entropies)


def _batches(pairs: Pairs) -> Iterator[list[int]]:
    """Indices of pairs of similar length."""
    numbers = sorted(range(len(pairs)), key=lambda n: [len(side) for side in reversed(pairs[n])])
    return in_batches(numbers, [max(map(len, pairs[number])) + 1 for number in numbers])
