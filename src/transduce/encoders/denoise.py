"""Denoising: restore texts of which a part is hidden, to pretrain encoder-decoders on monolingual text (T5, BART)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from transduce.config import require
from transduce.data.noise import Groups, Ints, RandomExamples, poisson_spans, random_spans
from transduce.data.packing import Example, PackedBatch, PackedStream
from transduce.encoders.masked import require_mask
from transduce.models.model import ModelConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import SENTINELS
from transduce.tokenizers.tokenizer import EOS
from transduce.training.task import Task
from transduce.translation.task import pack_pairs

_SHARES = {"t5": 0.15, "bart": 0.3}


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
