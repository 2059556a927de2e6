"""Translation: pairs of source and target, scored by BLEU and, if it is the criterion, by chrF."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from transduce.data.packing import Example, PackedBatch, PackedStream
from transduce.files.pairs import split_context
from transduce.models.likelihood import cross_attention
from transduce.models.model import Model, ModelConfig
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import escape, mark
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.training.task import Task, ValidationScore
from transduce.training.train_config import TrainConfig
from transduce.training.validation import Validation
from transduce.translation.calibration import MIN_PAIRS, fit_calibration
from transduce.translation.confidence import ANY
from transduce.translation.scores import bleu, choose_tokenizer, chrf, load_tokenizer, sentence_chrf
from transduce.translation.stages.protect import Protection
from transduce.translation.translator import Translator

_PICTURE_TOKENS = 40
_CALIBRATION_PAIRS = 200


class Translate(Task):
    """Pairs of sentences; after BOS, the decoder predicts the target and EOS."""

    score_name = "BLEU"
    searches = True
    counted = "target tokens"
    figures: ClassVar = {"bleu": "BLEU", "chrf": "chrF"}
    samples = ("Translations", ("source", "translation", "reference"))
    translates = True
    measured = ("source_vocab_size",)

    def model_settings(self, index: Mapping[str, Any]) -> dict[str, Any]:
        """The size of the source's vocabulary, if it has one of its own."""
        return {name: index[name] for name in self.measured if name in index}

    def refusal(self, config: ModelConfig) -> str | None:
        """Other models read a single text."""
        if config.architecture not in ("decoder_only", "encoder_only"):
            return None
        return f"the task translate needs a model of pairs, not of the architecture {config.architecture}"

    def pack(self, examples: Sequence[Example], seed: int = 0) -> PackedBatch:
        """Streams `src` (ends with EOS) and `tgt` (begins with BOS), and the target with EOS as labels."""
        sources, targets = zip(*examples, strict=True)
        return pack_pairs(PackedStream.of(sources, end=EOS), PackedStream.of(targets, end=EOS))

    def check_scoring(
        self, config: TrainConfig, language: str | None, examples: Sequence[tuple[Any, ...]]
    ) -> str | None:
        """BLEU may need a tokenizer that is not installed."""
        if not config.valid_sentences or not examples:
            return None
        tokenizer = choose_tokenizer(config.bleu_tokenizer, language, (ref for _, ref in examples))
        load_tokenizer(tokenizer, "--set train.bleu_tokenizer=")
        return f"BLEU with sacreBLEU's tokenizer {tokenizer}"

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore | None:
        """BLEU of the first pairs of each validation file, and of all of these together.

        The BLEU of a multilingual model is the mean of its directions' BLEU. A model that is trained with slots
        translates as in `transduce translate`, with protected spans in slots.
        """
        scored, config = validation.scored, validation.recipe.train
        if not any(len(validation.texts[pairs]) for _, pairs in scored):
            return None
        data, processes = validation.data, validation.processes
        translator = _translator(model, validation, options, protect=validation.uses_slots)
        examples = [example for _, pairs in scored for example in validation.texts[pairs]]
        contexts, sources = split_context([source for source, _ in examples])
        references = [reference for _, reference in examples]
        targets = [target for _, pairs in scored for target in validation.targets[pairs]]
        own_sources, own_contexts = sources[processes.share], contexts[processes.share]
        own_targets = targets[processes.share] if data.directions else None
        validation.display.phase("translating", len(own_sources))
        advance = validation.display.advance
        outputs = processes.gather(
            validation.interruptible(
                lambda: [
                    best[0].text
                    for best in translator.stream(own_sources, to=own_targets, contexts=own_contexts, text_done=advance)
                ]
            )
        )
        samples = [
            {"source": src, "reference": ref, "output": out} | ({"to": target} if target else {})
            for src, ref, out, target in zip(sources, references, outputs, targets, strict=True)
        ]
        all_references = [ref for _, ref in validation.texts]
        tokenizers = {
            target: choose_tokenizer(config.bleu_tokenizer, target or data.tgt_lang, all_references).name
            for target in dict.fromkeys(targets)
        }

        def metrics(part: slice) -> dict[str, float]:
            values = {"bleu": bleu(outputs[part], references[part], tokenizers[targets[part][0]])}
            return values | ({"chrf": chrf(outputs[part], references[part])} if config.criterion == "chrf" else {})

        files = validation.by_file(metrics)
        if data.directions and files:  # the outputs are in different languages
            more = {name: fmean(values[name] for values in files.values()) for name in next(iter(files.values()))}
        else:
            more = metrics(slice(None))
        return ValidationScore(more.pop("bleu"), samples, more, files, "+".join(dict.fromkeys(tokenizers.values())))

    def calibrate(self, model: Model, validation: Validation, options: SearchConfig) -> dict[str, Any]:
        """Fitted on some of the pairs that are scored, for each target language."""
        translator = _translator(model, validation, options)
        calibrations = {}
        for target in dict.fromkeys(validation.targets):
            files = [validation.texts[pairs] for _, pairs in validation.scored if target in validation.targets[pairs]]
            chosen = [pair for texts in files for pair in texts[: -(-_CALIBRATION_PAIRS // len(files))]]
            if len(chosen) >= MIN_PAIRS:
                calibration, _ = fit_calibration(
                    translator, [(split_context([src])[1][0], ref) for src, ref in chosen], target
                )
                calibrations[target or ANY] = calibration.to_table()
        return calibrations

    def worst(self, samples: list[dict[str, str]], count: int) -> list[dict[str, Any]]:
        scores = sentence_chrf([sample["output"] for sample in samples], [sample["reference"] for sample in samples])
        order = sorted(range(len(samples)), key=lambda index: scores[index])
        return [samples[index] | {"chrf": round(scores[index], 1)} for index in order[:count]]

    def picture(self, model: Model, validation: Validation, samples: list[dict[str, str]]) -> dict[str, Any] | None:
        """Cross-attention of the first sample that is short enough, as tokens and weights."""
        if model.alignment_attention is None or not samples:
            return None
        tokenizer = validation.tokenizer
        texts = [(mark(sample["source"], sample.get("to")), escape(sample["output"])) for sample in samples]
        sources, outputs = zip(*texts, strict=True)
        encoded = zip(
            tokenizer.encode_all(sources, marked=True), tokenizer.target.encode_all(outputs, marked=True), strict=True
        )
        src, out = next((sides for sides in encoded if max(map(len, sides)) <= _PICTURE_TOKENS), ([], []))
        if not src:
            return None
        weights_TS = cross_attention(model, [src], [out])[0]
        return {
            "source": tokenizer.pieces([*src, EOS]),
            "output": tokenizer.target.pieces([*out, EOS]),
            "weights": [[round(weight, 3) for weight in row] for row in weights_TS.tolist()],
        }


def pack_pairs(source: PackedStream, labels: PackedStream) -> PackedBatch:
    """The batch of sources and labels, which end with EOS: the stream `tgt` is the labels, shifted by one position."""
    tgt = np.concatenate([[BOS], labels.ids_N[:-1]])
    tgt[labels.offsets_B1[:-1]] = BOS
    streams = {"src": source, "tgt": PackedStream(tgt, labels.offsets_B1)}
    return PackedBatch(streams, labels.ids_N, count=len(labels.ids_N))


def _translator(model: Model, validation: Validation, options: SearchConfig, *, protect: bool = False) -> Translator:
    data = validation.data
    return Translator(
        model,
        validation.tokenizer,
        config=options,
        max_source_length=data.max_length,
        by_sentence=data.by_sentence,
        truecases=data.truecase,
        uses_slots=protect,
        protection=Protection() if protect else None,
        directions=data.language_pairs,
        tagged=bool(data.directions),
        context=bool(data.context),
        source_tags=data.source_tags,
    )
