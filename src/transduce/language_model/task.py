"""Language modelling: predict every next token of running text."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import ClassVar

import numpy as np

from transduce.data.packing import Example, Ids, Offsets, PackedBatch, PackedStream
from transduce.data.plan import Plan
from transduce.data.shards import TokenShards
from transduce.files.pairs import count_pairs
from transduce.language_model.generator import Generator
from transduce.language_model.window_plan import WindowPlan
from transduce.models.model import Model, ModelConfig
from transduce.search.decoder import Decoder
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import encode_prompt_and_answer
from transduce.tokenizers.tokenizer import BOS, EOS, PAD
from transduce.training.task import Task, ValidationScore
from transduce.training.validation import Validation

_NOT_CAUSAL = ("encoder_decoder", "encoder_only", "recurrent", "convolutional")
_SAMPLE_TOKENS = 80
_PROMPT_CHARACTERS, _TEXT_CHARACTERS = 100, 500


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig:
    """The task language_model."""

    answers_only: bool = False
    """The text is pairs of a prompt and its answer (.tsv or .jsonl), and only the answers count in the loss."""
    across_documents: bool = False
    """Whether a token attends to other documents before its own in the same window, and positions are counted from the
    first of them; otherwise, documents do not affect one another."""


class LanguageModel(Task):
    """Windows of the stream of all documents; the model predicts each token from those before it in its window.

    EOS, which ends a document, is only predicted; where it would be the input, the input is BOS. With `answers_only`,
    examples are prompts and answers instead of windows.
    """

    reader: str = "text"  # type: ignore[misc]
    settings: LanguageModelConfig
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

    def __init__(self, settings: LanguageModelConfig | None = None) -> None:
        super().__init__(settings or LanguageModelConfig())
        self._separates = not self.settings.across_documents
        self._characters = 0
        """Characters that the validation examples predict."""
        if self.settings.answers_only:
            self.reader = "prompts"

    def refusal(self, config: ModelConfig) -> str | None:
        """Other models read pairs, or see the tokens that they should predict."""
        if config.architecture not in _NOT_CAUSAL:
            return None
        return "the task language_model needs another model: model.architecture=decoder_only"

    def plan(self, shards: TokenShards, batch_tokens: int, seed: int, *, growth: float, max_length: int) -> Plan:
        if self.settings.answers_only:
            return super().plan(shards, batch_tokens, seed, growth=growth, max_length=max_length)
        # The windows of a single document are sequences of equal length, whose attention is faster.
        self._separates = self._separates and shards.index["documents"] > 1
        return WindowPlan(shards, batch_tokens, seed, max_length, separates=self._separates)

    def pack(self, examples: Sequence[Example], seed: int = 0) -> PackedBatch:
        """A window of n + 1 tokens is n inputs in the stream `text`, and n labels."""
        windows = [np.asarray(ids, dtype=np.int64) for (ids,) in examples]
        prompts = [0] * len(windows)
        if self.settings.answers_only:
            prompts = [int((ids == BOS).argmax()) for ids in windows]
            windows = [np.concatenate([[BOS], ids[ids != BOS], [EOS]]) for ids in windows]
        inputs: Ids = np.concatenate([window[:-1] for window in windows])
        labels: Ids = np.concatenate([window[1:] for window in windows])
        starts: Offsets = np.cumsum([0, *(len(window) - 1 for window in windows)], dtype=np.int32)
        for start, prompt in zip(starts, prompts, strict=False):
            labels[start : start + prompt] = PAD
        is_end = inputs == EOS
        offsets = np.union1d(starts, np.flatnonzero(is_end)).astype(np.int32) if self._separates else starts
        inputs[is_end] = BOS
        return PackedBatch({"text": PackedStream(inputs, offsets)}, labels, count=int((labels != PAD).sum()))

    def validation_examples(self, validation: Validation, log: Callable[[str], None]) -> list[Example]:
        if self.settings.answers_only:
            encoded = [encode_prompt_and_answer(validation.tokenizer, *texts) for texts in validation.texts]
            kept = [len(ids) <= validation.data.max_length for ids in encoded]
            if left_out := kept.count(False):
                most = f"{validation.data.max_length} tokens (data.max_length)"
                log(f"validation: left out {count_pairs(left_out, 'answer')} that exceed {most} with their prompts")
            self._characters = sum(len(texts[-1]) for texts in compress(validation.texts, kept))
            return sorted(((ids,) for ids in compress(encoded, kept)), key=lambda example: len(example[0]))
        self._characters = sum(len(text) for (text,) in validation.texts)
        ids = [validation.tokenizer.encode_document(text) for (text,) in validation.texts]
        stream = np.array([BOS, *(token for document in ids for token in (*document, EOS))], dtype=np.int64)
        length = validation.data.max_length
        return [(stream[start : start + length + 1],) for start in range(0, len(stream) - 1, length)]

    def more_figures(self, nll: float, validation: Validation) -> dict[str, float]:
        return {"bits_per_character": nll / math.log(2) / max(self._characters, 1)}

    def score(self, model: Model, validation: Validation, options: SearchConfig) -> ValidationScore | None:
        """Samples that continue prompts of the validation text; the loss is the criterion."""
        if not isinstance(model, Decoder):
            return None
        generator = Generator(model, validation.tokenizer, context=validation.data.max_length, config=options)
        count = validation.recipe.train.samples
        chosen = validation.texts[:count]
        if not self.settings.answers_only:
            chosen = list(_excerpts([text for (text,) in validation.texts], count))
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
