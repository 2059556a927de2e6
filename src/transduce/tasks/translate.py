"""How good the model is on text it does not learn from: loss, BLEU, and a few translations to look at."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import torch

from transduce.data.packing import pack
from transduce.data.prepare import Prepared
from transduce.distributed.processes import Processes
from transduce.distributed.signals import Interrupted, StopRequest
from transduce.errors import DataError
from transduce.evaluation.scores import bleu
from transduce.models.alignment import cross_attention
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.loss import smoothed_cross_entropy
from transduce.runs.recipe import Recipe
from transduce.text.tokenizer import EOS, Tokenizer
from transduce.training.loader import to_device
from transduce.translator import Translator

_BATCH_TOKENS = 4096
_PICTURE_TOKENS = 40


Encoded = tuple[list[int], list[int]]
T = TypeVar("T")


class Validation:
    """The validation set and how to use it, shared among the processes; a signal breaks it off."""

    def __init__(
        self, recipe: Recipe, prepared: Prepared, say: Callable[[str], None], processes: Processes, stop: StopRequest
    ) -> None:
        self.pairs, self.tokenizer = prepared.valid, prepared.tokenizer
        self.sentences = recipe.train.valid_sentences
        """So many of the first pairs are translated."""
        self.digest = hashlib.sha256(json.dumps([self.pairs, self.sentences]).encode()).hexdigest()[:16]
        """Tells validation sets apart."""
        self._data, self._processes, self._stop = recipe.data, processes, stop
        longest = recipe.data.max_length
        sides = [self.tokenizer.encode_all([pair[side] for pair in self.pairs]) for side in (0, 1)]
        self._encoded = [pair for pair in zip(sides[0], sides[1], strict=True) if max(map(len, pair)) <= longest]
        self._encoded.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
        if self.pairs and not self._encoded:
            raise DataError(f"every validation pair has more than {longest} tokens; raise data.max_length")
        if too_long := len(self.pairs) - len(self._encoded):
            pairs = "pair" if too_long == 1 else "pairs"
            say(f"validation data: the loss leaves out {too_long:,} {pairs} above {longest} tokens (data.max_length)")

    @property
    def is_first(self) -> bool:
        """Whether this process writes down what all have found."""
        return self._processes.is_first

    def loss(self, model: EncoderDecoder, smoothing: float) -> tuple[float, float]:
        """Smoothed loss and perplexity per target token."""
        mine = self._together(lambda: self._sums(model, smoothing))
        loss_sum, nll_sum, tokens = self._processes.total(*mine)
        return loss_sum / tokens, math.exp(min(nll_sum / tokens, 50))

    def translate(self, model: EncoderDecoder, **options: Any) -> tuple[float, list[dict[str, str]]]:
        """BLEU, and every translation beside source and reference."""
        data = self._data
        translator = Translator(model, self.tokenizer, max_source_length=data.max_length, by_sentence=data.by_sentence)
        sources, references = zip(*self.pairs[: self.sentences], strict=True)
        mine = sources[self._processes.share]
        outputs = self._processes.gather(self._together(lambda: translator.translate(mine, **options)))
        rows = zip(sources, references, outputs, strict=True)
        samples = [{"source": src, "reference": ref, "output": out} for src, ref, out in rows]
        return bleu(outputs, references), samples

    def _together(self, work: Callable[[], T]) -> T:
        """This process's share of the work; `Interrupted` in all processes where a signal came to one of them."""
        result: T | None = None
        with suppress(Interrupted), self._stop.interrupting():
            result = work()
        if self._processes.any(result is None):
            raise Interrupted
        assert result is not None
        return result

    def _sums(self, model: EncoderDecoder, smoothing: float) -> tuple[float, float, float]:
        """Loss, negative log-likelihood and target tokens of this process's batches."""
        device = model.embedding.weight_VD.device
        loss_sum = nll_sum = tokens = 0.0
        with torch.inference_mode():
            for pairs in list(self._batches())[self._processes.share]:
                batch = to_device(pack(pairs), device)
                hidden_MD = model(batch.src_N, batch.src_segments, batch.tgt_M, batch.tgt_segments)
                loss, nll = smoothed_cross_entropy(hidden_MD, batch.labels_M, model.embedding.weight_VD, smoothing)
                loss_sum, nll_sum, tokens = loss_sum + loss.item(), nll_sum + nll.item(), tokens + batch.target_tokens
        return loss_sum, nll_sum, tokens

    def _batches(self) -> Iterator[list[Encoded]]:
        batch: list[Encoded] = []
        tokens = 0
        for pair in self._encoded:
            longer = max(map(len, pair)) + 1
            if batch and tokens + longer > _BATCH_TOKENS:
                yield batch
                batch, tokens = [], 0
            batch.append(pair)
            tokens += longer
        if batch:
            yield batch


def attention_picture(
    model: EncoderDecoder, tokenizer: Tokenizer, samples: list[dict[str, str]]
) -> dict[str, Any] | None:
    """What each output token of the first sample of a handy size looked at in the source: tokens and weights."""
    encoded = [[tokenizer.encode(sample[side]) for side in ("source", "output")] for sample in samples]
    src, out = next((sides for sides in encoded if max(map(len, sides)) <= _PICTURE_TOKENS), ([], []))
    if not src:
        return None
    weights_TS = cross_attention(model, [src], [out])[0]
    return {
        "source": tokenizer.pieces([*src, EOS]),
        "output": tokenizer.pieces([*out, EOS]),
        "weights": [[round(weight, 3) for weight in row] for row in weights_TS.tolist()],
    }
