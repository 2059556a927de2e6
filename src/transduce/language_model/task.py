"""Language modelling: predict every next token of running text."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from transduce.data.packing import Example, Ids, Offsets, PackedBatch, PackedStream
from transduce.data.plan import Plan
from transduce.data.shards import TokenShards
from transduce.language_model.generator import Generator
from transduce.language_model.window_plan import WindowPlan
from transduce.models.model import Model, ModelConfig
from transduce.search.decoder import Decoder
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, EOS, PAD
from transduce.training.task import Task, ValidationScore
from transduce.training.validation import Validation

_NOT_CAUSAL = ("encoder_decoder", "encoder_only", "recurrent", "convolutional")
_SAMPLE_TOKENS = 80
_PROMPT_CHARACTERS, _TEXT_CHARACTERS = 100, 500


class LanguageModel(Task):
    """Windows of the stream of all documents; the model predicts each token from those before it in its window.

    EOS, which ends a document, is only predicted; where it would be the input, the input is BOS.
    """

    reader = "text"
    markers = 0
    always_samples = True
    score_name = "loss"
    figures: ClassVar = {"bits_per_character": "Bits per character"}
    lower_is_better = frozenset({"bits_per_character"})
    samples = ("Samples", ("prompt", "continuation", "original"))
    defaults: ClassVar = {
        "model": {"architecture": "decoder_only"},
        "train": {
            "label_smoothing": 0.0, "schedule": "cosine", "weight_decay": 0.1, "clip_norm": 1.0, "beta2": 0.95,
            "epsilon": 1e-8, "average": 1,
        },
    }  # fmt: skip

    def refusal(self, config: ModelConfig) -> str | None:
        """Other models read pairs, or see the tokens that they should predict."""
        if config.architecture not in _NOT_CAUSAL:
            return None
        return "the task language_model needs another model: model.architecture=decoder_only"

    def plan(self, shards: TokenShards, batch_tokens: int, seed: int, *, growth: float, max_length: int) -> Plan:
        return WindowPlan(shards, batch_tokens, seed, max_length)

    def pack(self, examples: Sequence[Example], seed: int = 0) -> PackedBatch:
        """A window of n + 1 tokens is n inputs in the stream `text`, and n labels."""
        windows = [np.asarray(ids, dtype=np.int64) for (ids,) in examples]
        inputs: Ids = np.concatenate([window[:-1] for window in windows])
        labels: Ids = np.concatenate([window[1:] for window in windows])
        offsets: Offsets = np.cumsum([0, *(len(window) - 1 for window in windows)], dtype=np.int32)
        inputs[inputs == EOS] = BOS
        return PackedBatch({"text": PackedStream(inputs, offsets)}, labels, count=int((labels != PAD).sum()))

    def validation_examples(self, validation: Validation, log: Callable[[str], None]) -> list[Example]:
        ids = [validation.trained_tokenizer.encode_document(text) for (text,) in validation.texts]
        stream = np.array([BOS, *(token for document in ids for token in (*document, EOS))], dtype=np.int64)
        length = validation.data.max_length
        return [(stream[start : start + length + 1],) for start in range(0, len(stream) - 1, length)]

    def more_figures(self, nll: float, validation: Validation) -> dict[str, float]:
        return {"bits_per_character": nll / math.log(2) / sum(len(text) for (text,) in validation.texts)}

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore | None:
        """Samples that continue prompts of the validation text; the loss is the criterion."""
        if not isinstance(model, Decoder):
            return None
        generator = Generator(model, validation.trained_tokenizer, context=validation.data.max_length, config=options)
        chosen = list(_excerpts([text for (text,) in validation.texts], validation.recipe.train.samples))
        processes = validation.processes
        prompts = [prompt for prompt, _ in chosen[processes.share]]
        outputs = processes.gather(
            validation.interruptible(lambda: generator.generate(prompts, max_tokens=_SAMPLE_TOKENS) if prompts else [])
        )
        samples = [
            {"source": prompt, "reference": original, "output": output}
            for (prompt, original), output in zip(chosen, outputs, strict=True)
        ]
        return ValidationScore(None, samples)


def _excerpts(documents: Sequence[str], count: int) -> Iterator[tuple[str, str]]:
    """A prompt and the text after it, at this many places of the documents, each at the beginning of a line."""
    text = "\n".join(documents)
    for number in range(count):
        place = len(text) * number // count
        start = text.find("\n", place) + 1 if place else 0
        excerpt = text[start : start + _TEXT_CHARACTERS].lstrip("\n")
        end = excerpt.rfind(" ", 1, _PROMPT_CHARACTERS)
        end = end if end > 0 else _PROMPT_CHARACTERS
        if len(excerpt) > end:
            yield excerpt[:end], excerpt[end:]
