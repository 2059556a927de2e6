"""Pretraining on texts of which a part is hidden: masked tokens (BERT), and denoising (T5, BART).

Masked tokens are predicted from all others by an encoder; denoising restores a text, to pretrain encoder-decoders.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import torch

from transduce.config import require
from transduce.data.packing import Example, PackedBatch, PackedStream
from transduce.encoders.noise import Groups, Ints, RandomExamples, poisson_spans, random_spans
from transduce.errors import ConfigError
from transduce.models.model import Model, ModelConfig
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import MASK, SENTINELS
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.training.task import Task, ValidationScore
from transduce.training.validation import Validation
from transduce.translation.task import pack_pairs

_REPLACED, _RANDOM = 0.8, 0.1
"""Shares of the chosen tokens that are replaced by the mask symbol, and by a random token; the others stay."""
_MARGIN = 4 / 3
"""On a GPU, a batch has this many times the expected number of labels."""
_SHARES = {"t5": 0.15, "bart": 0.3}


@dataclass(frozen=True, kw_only=True)
class MaskedConfig:
    """The task masked."""

    share: float = 0.15
    """Share of the tokens of a text that are predicted, at least one: 80% of them are replaced by the mask symbol, 10%
    by a random token, and 10% stay."""

    def __post_init__(self) -> None:
        require(0 < self.share < 1, "share must be above 0 and below 1")


class Masked(Task):
    """BOS, text, EOS, with some tokens changed; the model predicts what they were."""

    reader = "lines"
    markers = 2
    score_name = "Accuracy"
    figures: ClassVar = {"accuracy": "Accuracy"}
    samples = ("Masked texts", ("masked text", "predicted tokens", "masked tokens"))
    defaults: ClassVar = {"model": {"architecture": "encoder_only"}, "train": {"label_smoothing": 0.0}}

    settings: MaskedConfig

    def __init__(self, settings: MaskedConfig | None = None) -> None:
        super().__init__(settings or MaskedConfig())
        self._mask = 0
        self._ordinary = np.zeros(0, np.int64)

    def set_tokenizer(self, tokenizer: AnyTokenizer) -> None:
        """The mask symbol, and the tokens that may replace others."""
        super().set_tokenizer(tokenizer)
        self._mask = require_mask(tokenizer)
        symbols = set(tokenizer.symbol_ids.values())
        self._ordinary = np.array([token for token in range(EOS + 1, tokenizer.vocab_size) if token not in symbols])

    def refusal(self, config: ModelConfig) -> str | None:
        if config.architecture != "encoder_only":
            return "the task masked needs model.architecture=encoder_only"
        if getattr(config, "classes", None):
            return "the task masked predicts tokens, but the model is a classifier (model.classes)"
        return None

    def pack(self, examples: Sequence[Example], seed: int) -> PackedBatch:
        """The stream `text`, and as labels the original tokens at the chosen positions."""
        random = RandomExamples([ids for (ids,) in examples], seed)
        groups, sizes_B = random.groups, random.groups.sizes_B
        counts_B = np.floor(self.settings.share * sizes_B + random.number_of_each(0)).astype(np.int64)
        chosen_N = groups.choose(np.maximum(counts_B, 1), random.numbers(groups, 1))
        labels_L, kind_L = random.ids_N[chosen_N], random.numbers(groups, 2)[chosen_N]
        drawn_L = (random.numbers(groups, 3)[chosen_N] * len(self._ordinary)).astype(np.int64)
        changed_L = np.where(kind_L < _REPLACED, self._mask, labels_L)
        is_random_L = (kind_L >= _REPLACED) & (kind_L < _REPLACED + _RANDOM)
        changed_L = np.where(is_random_L, self._ordinary[drawn_L], changed_L)
        # In the packed stream, BOS and EOS surround every text.
        position_N = np.arange(len(random.ids_N)) + 2 * groups.group_N + 1
        offsets_B1 = np.cumsum([0, *(sizes_B + 2)], dtype=np.int32)
        ids = np.empty(offsets_B1[-1], np.int64)
        ids[offsets_B1[:-1]], ids[offsets_B1[1:] - 1] = BOS, EOS
        ids[position_N] = random.ids_N
        ids[position_N[chosen_N]] = changed_L
        stream = PackedStream(ids, offsets_B1)
        return PackedBatch({"text": stream}, labels_L, len(labels_L), position_N[chosen_N], work=len(random.ids_N))

    def max_labels(self, tokens: int, segments: int) -> int:
        """The others need not go through the vocabulary."""
        return min(tokens, int(_MARGIN * self.settings.share * tokens) + 16)

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore | None:
        """The share of masked tokens whose most likely prediction is right."""
        samples: list[dict[str, str]] = []

        def count() -> tuple[int, int]:
            right = total = 0
            for batch in validation.batches(model.device):
                with torch.inference_mode():
                    predicted_L = model.logits(model(batch)).argmax(-1)
                right += int((predicted_L == batch.labels_L).sum())
                total += batch.count
                if len(samples) < validation.recipe.train.samples:
                    assert batch.positions_L is not None
                    samples.extend(
                        self._samples(
                            batch["text"].ids_N.tolist(),
                            batch["text"].segments.offsets_B1.tolist(),
                            dict(zip(batch.positions_L.tolist(), predicted_L.tolist(), strict=True)),
                            dict(zip(batch.positions_L.tolist(), batch.labels_L.tolist(), strict=True)),
                        )
                    )
            return right, total

        right, total = validation.processes.total(*validation.interruptible(count))
        return ValidationScore(100 * right / total, samples[: validation.recipe.train.samples])

    def _samples(
        self, ids: list[int], offsets: list[int], predicted: dict[int, int], labels: dict[int, int]
    ) -> list[dict[str, str]]:
        decode: Callable[[list[int]], str] = self.tokenizer.decode
        result = []
        for start, end in pairwise(offsets):
            places = [place for place in range(start, end) if place in labels]
            marked = self.tokenizer.decode_all([ids[start:end]], marked=True)[0].replace(MASK, " <mask> ")
            result.append(
                {
                    "source": " ".join(marked.split()),
                    "output": " | ".join(decode([predicted[place]]) for place in places),
                    "reference": " | ".join(decode([labels[place]]) for place in places),
                }
            )
        return result


def require_mask(tokenizer: AnyTokenizer) -> int:
    """The id of the mask symbol."""
    if MASK not in tokenizer.symbol_ids:
        raise ConfigError(
            "the vocabulary has no mask symbol; let transduce learn one (without tokenizer.path), or start from a "
            "model whose vocabulary has it"
        )
    return tokenizer.symbol_ids[MASK]


@dataclass(frozen=True, kw_only=True)
class DenoiseConfig:
    """The task denoise."""

    kind: Literal["t5", "bart"] = "t5"
    """t5: another symbol takes the place of each span, and the target is the spans, each after its symbol. bart: the
    mask symbol takes the place of each span, whose length is drawn from a Poisson distribution, and the target is the
    whole text."""
    share: float | None = None
    """Share of the tokens that are in spans; by default 0.15 (t5) or 0.3 (bart)."""
    mean_span: float = 3.0
    """Mean number of tokens of a span."""

    def __post_init__(self) -> None:
        require(self.share is None or 0 < self.share < 1, "share must be above 0 and below 1")
        require(1 <= self.mean_span <= 100, "mean_span must be between 1 and 100")

    @property
    def hidden_share(self) -> float:
        """Share of the tokens that are in spans."""
        return _SHARES[self.kind] if self.share is None else self.share


class Denoise(Task):
    """Texts with hidden spans as the source; what is hidden, or the whole text, as the target."""

    reader = "lines"
    counted = "target tokens"
    markers = 2
    score_name = "loss"

    settings: DenoiseConfig

    def __init__(self, settings: DenoiseConfig | None = None) -> None:
        super().__init__(settings or DenoiseConfig())
        self._marks: Ints = np.zeros(0, np.int64)

    @property
    def symbols(self) -> Sequence[str]:
        """The mask symbol is in every vocabulary."""
        return SENTINELS if self.settings.kind == "t5" else ()

    def set_tokenizer(self, tokenizer: AnyTokenizer) -> None:
        super().set_tokenizer(tokenizer)
        ids = tokenizer.symbol_ids
        t5 = self.settings.kind == "t5"
        self._marks = np.array([ids[symbol] for symbol in SENTINELS] if t5 else [require_mask(tokenizer)])

    def refusal(self, config: ModelConfig) -> str | None:
        if config.architecture == "encoder_decoder" and getattr(config, "source", None) != "audio":
            return None
        return "the task denoise needs model.architecture=encoder_decoder that reads text"

    def pack(self, examples: Sequence[Example], seed: int) -> PackedBatch:
        config = self.settings
        random = RandomExamples([ids for (ids,) in examples], seed)
        if config.kind == "t5":
            spans = random_spans(random, config.hidden_share, config.mean_span, most=len(self._marks))
            mark_X = self._marks[spans.groups.place_N]
        else:
            spans = poisson_spans(random, config.hidden_share, config.mean_span)
            mark_X = np.repeat(self._marks, len(spans.length_X))
        inside_N, number_X = spans.tokens(random.groups), spans.groups.place_N
        counts_B, sizes_B = spans.groups.sizes_B, random.groups.sizes_B
        inside_B = np.bincount(random.groups.group_N[inside_N], minlength=len(sizes_B))
        source = _merged(
            random.ids_N[~inside_N], sizes_B - inside_B + counts_B, spans.groups, spans.gap_X + number_X, mark_X
        )
        if config.kind == "t5":
            before_X = spans.groups.sums_before(spans.length_X)
            labels = _merged(random.ids_N[inside_N], inside_B + counts_B, spans.groups, before_X + number_X, mark_X)
        else:
            labels = PackedStream.of([ids for (ids,) in examples], end=EOS)
        return pack_pairs(source, labels)


def _merged(ids: Ints, sizes_B: Ints, marks: Groups, place_X: Ints, mark_X: Ints) -> PackedStream:
    """Sequences of `sizes_B` tokens and EOS: marks at their places, and the ids, in order, at all other places."""
    offsets_B1 = np.cumsum([0, *(sizes_B + 1)], dtype=np.int32)
    merged = np.full(offsets_B1[-1], -1, np.int64)
    merged[offsets_B1[1:] - 1] = EOS
    merged[offsets_B1[:-1][marks.group_N] + place_X] = mark_X
    merged[merged < 0] = ids
    return PackedStream(merged, offsets_B1)
