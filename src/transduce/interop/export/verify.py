"""Verifying an export: another program must compute the same logits and the same greedy outputs as the original."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from transduce.data.batch import Batch
from transduce.errors import ModelError
from transduce.interop.export.exporter import Consumer, Exported
from transduce.interop.import_model import import_model
from transduce.interop.vocabulary import typed_tag
from transduce.models.folder import load_model
from transduce.models.model import Model
from transduce.search.engine import Job, output_limit, search_all
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import mark
from transduce.tokenizers.tokenizer import BOS, EOS

SENTENCES = 100
MOST_DIFFERENCE = 1e-4
LEAST_IDENTICAL = 0.99
_LONGEST_SAMPLE = 20
GREEDY = SearchConfig(beam=1, min_length=1)


@dataclass(frozen=True)
class Verification:
    consumer: str
    sentences: int
    identical: int
    """Number of equal greedy outputs."""
    difference: float
    """Largest difference of logits."""
    identical_int8: int | None = None
    """Number of greedy outputs of the 8-bit model that are those of the original, if one was written."""

    def __str__(self) -> str:
        result = (
            f"{self.consumer} in float32: {self.identical} of {self.sentences} greedy outputs identical, logits differ "
            f"by at most {self.difference:.1e}"
        )
        if self.identical_int8 is None:
            return result
        return f"{result}; in 8 bits, {self.identical_int8} of {self.sentences} greedy outputs identical"


def sample_texts(tokenizer: AnyTokenizer, count: int = SENTENCES) -> list[str]:
    """Texts of random words of a vocabulary, which serve as sentences in any language."""
    chance = random.Random(1)
    ids = range(EOS + 1, tokenizer.vocab_size)
    words = [token for token in ids if tokenizer.raw_bytes(token).decode(errors="replace").strip().isalpha()]
    texts = []
    for _ in range(count):
        chosen = chance.choices(words or list(ids), k=chance.randint(2, _LONGEST_SAMPLE))
        texts.append(" ".join(tokenizer.decode(chosen).split()) or "a")
    return texts


@dataclass(frozen=True)
class Samples:
    """Sentences with the outputs of the original."""

    texts: list[str]
    """The sources as a user of the other toolkit types them."""
    sources: list[list[int]]
    outputs: list[list[int]]
    limits: list[int]
    """The maximum number of tokens of each output."""


def make_samples(exported: Exported, texts: Sequence[str]) -> Samples:
    """Translate the sentences with the original; if it has several target languages, each in turn."""
    targets: list[str | None] = [*sorted(exported.vocabulary.tags)] or [None]
    if exported.direction and exported.vocabulary.tags:
        targets = [exported.direction[1]]
    languages = [targets[n % len(targets)] for n in range(len(texts))]
    marked = [mark(text, language) for text, language in zip(texts, languages, strict=True)]
    typed = [
        text if language is None else f"{typed_tag(language)} {text}"
        for text, language in zip(texts, languages, strict=True)
    ]
    sources = exported.tokenizer.encode_all(marked, marked=True)
    return Samples(typed, sources, *greedy(exported.model, sources))


def verify(exported: Exported, consumer: Consumer, samples: Samples) -> Verification:
    """Compare a consumer with the original; raises an error with the first difference if they disagree."""
    difference = 0.0
    for text, source, output in zip(samples.texts, samples.sources, samples.outputs, strict=True):
        ours, theirs = forced_logits(exported.model, source, output), consumer.logits(text, output)
        if ours.shape != theirs.shape:
            raise ModelError(f"{consumer.name}: {_at(text)}the logits have the shape {tuple(theirs.shape)}")
        # Markers below EOS are never produced; some toolkits give them another logit for that reason.
        largest = float((ours - theirs)[:, EOS:].abs().max())
        if not largest <= MOST_DIFFERENCE:
            raise ModelError(
                f"{consumer.name}: {_at(text)}logits differ by {largest:.1e}, more than {MOST_DIFFERENCE:.0e}; "
                "nothing was written"
            )
        difference = max(difference, largest)
    identical, first = compare_outputs(consumer, samples)
    if identical < LEAST_IDENTICAL * len(samples.texts):
        raise ModelError(
            f"{consumer.name}: only {identical} of {len(samples.texts)} greedy outputs are identical; the first "
            f"difference is {first}; nothing was written"
        )
    return Verification(consumer.name, len(samples.texts), identical, difference)


def compare_outputs(consumer: Consumer, samples: Samples) -> tuple[int, str]:
    """The number of greedy outputs of a consumer that are those of the original, and the first that is not."""
    identical, first = 0, ""
    outputs = consumer.translate(samples.texts, samples.limits)
    for text, ours, theirs, limit in zip(samples.texts, samples.outputs, outputs, samples.limits, strict=True):
        if ours == theirs[:limit]:
            identical += 1
        elif not first:
            first = f"{_at(text)}{theirs[:limit]} instead of {ours}"
    return identical, first


def greedy(model: Model, sources: Sequence[list[int]]) -> tuple[list[list[int]], list[int]]:
    """The greedy output of each source, and its maximum number of tokens."""
    jobs = [Job(source, []) for source in sources]
    limits = [output_limit(job, GREEDY, model.longest) for job in jobs]
    return [best[0].tokens for best in search_all(PlainEngine(model), jobs, GREEDY)], limits


def forced_logits(model: Model, source: Sequence[int], output: Sequence[int]) -> Tensor:
    """The logits (T + 1, V) of our own model at each token of an output and at its end."""
    with torch.inference_mode():
        return model.logits(model(Batch.of(src=[[*source, EOS]], tgt=[[BOS, *output]])))


class OwnReader:
    """`transduce import` as the consumer, if the other toolkit is not installed or has no access to logits."""

    name = "transduce import"

    def __init__(self, path: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            import_model(path, Path(folder) / "model", foreign=True)
            saved = load_model(Path(folder) / "model")
        self._model, self._tokenizer = saved.model, saved.tokenizer

    def logits(self, text: str, output: Sequence[int]) -> Tensor:
        return forced_logits(self._model, self._tokenizer.encode(text), output)

    def translate(self, texts: Sequence[str], limits: Sequence[int]) -> list[list[int]]:
        return greedy(self._model, self._tokenizer.encode_all(texts))[0]


def _at(text: str) -> str:
    return f"for the source {text!r:.80}, "
