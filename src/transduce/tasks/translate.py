"""Translation: pairs of source and target; BLEU selects the best checkpoint."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from transduce.data.packing import Example, PackedBatch, PackedStream
from transduce.evaluation.scores import bleu
from transduce.models.alignment import cross_attention
from transduce.models.model import Model
from transduce.search.options import SearchConfig
from transduce.tasks.task import Task, ValidationScore
from transduce.tasks.validation import Validation
from transduce.text.languages import mark
from transduce.text.symbols import escape
from transduce.text.tokenizer import BOS, EOS
from transduce.translator import Translator

_PICTURE_TOKENS = 40


class Translate(Task):
    """Pairs of sentences; after BOS, the decoder predicts the target and EOS."""

    score_name = "BLEU"

    def pack(self, examples: Sequence[Example], seed: int = 0) -> PackedBatch:
        """See `Task`: streams `src` (ends with EOS) and `tgt` (begins with BOS), and the target with EOS as labels."""
        sources, targets = zip(*examples, strict=True)
        labels = PackedStream.of(targets, end=EOS)
        tgt = np.concatenate([[BOS], labels.ids_N[:-1]])  # the labels, shifted by one position ...
        tgt[labels.offsets_B1[:-1]] = BOS  # ... and every sentence begins with BOS
        streams = {"src": PackedStream.of(sources, end=EOS), "tgt": PackedStream(tgt, labels.offsets_B1)}
        return PackedBatch(streams, labels.ids_N, count=len(labels.ids_N))

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore | None:
        """See `Task`: BLEU of the first validation pairs."""
        if not validation.scored:
            return None
        data, processes = validation.data, validation.processes
        translator = Translator(
            model,
            validation.tokenizer,
            config=options,
            max_source_length=data.max_length,
            by_sentence=data.by_sentence,
            directions=data.language_pairs,
            tagged=bool(data.directions),
        )
        sources, references = zip(*validation.texts[: validation.scored], strict=True)
        own_sources, own_targets = sources[processes.share], validation.targets[: len(sources)][processes.share]
        to = own_targets if data.directions else None
        outputs = processes.gather(validation.interruptible(lambda: translator.translate(own_sources, to=to)))
        rows = zip(sources, references, outputs, validation.targets, strict=False)
        samples = [
            {"source": src, "reference": ref, "output": out} | ({"to": target} if target else {})
            for src, ref, out, target in rows
        ]
        return ValidationScore(bleu(outputs, references), samples)

    def picture(self, model: Model, validation: Validation, samples: list[dict[str, str]]) -> dict[str, Any] | None:
        """See `Task`: cross-attention of the first sample that is short enough, as tokens and weights."""
        if model.alignment_attention is None:
            return None
        tokenizer = validation.tokenizer
        texts = [(mark(sample["source"], sample.get("to")), escape(sample["output"])) for sample in samples]
        encoded = [tokenizer.encode_all(sides, marked=True) for sides in texts]
        src, out = next((sides for sides in encoded if max(map(len, sides)) <= _PICTURE_TOKENS), ([], []))
        if not src:
            return None
        weights_TS = cross_attention(model, [src], [out])[0]
        return {
            "source": tokenizer.pieces([*src, EOS]),
            "output": tokenizer.pieces([*out, EOS]),
            "weights": [[round(weight, 3) for weight in row] for row in weights_TS.tolist()],
        }
