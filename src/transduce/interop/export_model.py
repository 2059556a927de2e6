"""Exporting a model: write it, verify it with a program that runs it, and only then let its folder appear."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import build
from transduce.data.batch import Batch
from transduce.disk import atomic_folder
from transduce.errors import ConfigError, ModelError
from transduce.features import Registry
from transduce.files.languages import Direction, TargetLanguage, choose_target, describe_directions, directions_of
from transduce.interop.exchange import CARD, ORIGINAL_NOTES, VOCABULARY, Consumer, Exported, Exporter
from transduce.interop.import_model import import_model
from transduce.interop.vocabulary import export_vocabulary, typed_tag
from transduce.models.folder import NOTES, card_text, load_model, read_card, read_notes
from transduce.models.model import Model
from transduce.search.engine import Job, output_limit, search_all
from transduce.search.options import SearchConfig
from transduce.search.plain_engine import PlainEngine
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import mark
from transduce.tokenizers.tokenizer import BOS, EOS

EXPORTERS: Registry[Exporter] = Registry("exporters")
"""The formats, by the name that `transduce export --to` takes."""
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


@dataclass(frozen=True)
class Export:
    title: str
    verification: Verification
    limits: list[str]


def export_model(
    folder: Path,
    to: str,
    out: Path,
    *,
    quantization: str = "float32",
    source: str | None = None,
    target: str | None = None,
    sentences: Sequence[str] | None = None,
) -> Export:
    """Write a model folder in another format, atomically as a new folder.

    It appears only if another program computes the same logits and greedy outputs, for these sentences or for random
    ones. `source` and `target` select one direction of a model with several.
    """
    if to not in EXPORTERS:
        raise ConfigError(f"--to must be one of {', '.join(EXPORTERS)} or web, not {to!r:.40}")
    exporter = EXPORTERS[to]
    if quantization not in exporter.quantizations:
        raise ConfigError(f"--quantization of {to} must be {' or '.join(exporter.quantizations)}")
    if out.exists():
        raise ModelError(f"{out} exists already; name a folder that does not")
    saved = load_model(folder)
    facts = saved.facts
    if (task := facts.get("task", "translate")) != "translate":
        raise ModelError(f"{folder} was trained for the task {task}; only translation models can be exported")
    try:
        model = exporter.check(saved.model)
        tagged = bool(facts.get("tagged"))
        sides = slice(None) if facts.get("source_tags") else slice(1, None)  # only target languages have tags
        languages = sorted({code for pair in directions_of(facts) for code in pair[sides]}) if tagged else []
        vocabulary = export_vocabulary(saved.tokenizer, languages)
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from None
    search = build(SearchConfig, facts.get("search", {}), str(folder))
    direction = _direction(facts, source, target, required=exporter.one_direction)
    longest = min(facts.get("max_length", 256), model.longest or 2**16)
    exported = Exported(model, saved.tokenizer, vocabulary, facts, search, direction, longest)
    texts = sample_texts(saved.tokenizer) if sentences is None else list(sentences)
    if not texts:
        raise ConfigError("no sentences to verify the export with; give a file with at least one line")
    with atomic_folder(out) as work:
        samples = make_samples(exported, texts)
        exporter.write(exported, work)
        verification = verify(exported, exporter.consumer(exported, work) or OwnReader(work), samples)
        if quantization == "int8":
            exported = replace(exported, quantization=quantization)
            exporter.write(exported, work)
            identical, _ = compare_outputs(exporter.consumer(exported, work) or OwnReader(work), samples)
            verification = replace(verification, identical_int8=identical)
        # The rows of markers that are never produced: other toolkits leave them out, or give them another bias.
        weights = model.state_dict()
        markers = {name: weights[name][:EOS].tolist() for name in VOCABULARY if name in weights}
        card = read_card(folder) | {"markers": markers}
        (work / CARD).write_text(card_text(card), encoding="utf-8")
        notes = _readme(exported, exporter, out.name, verification, read_notes(folder))
        (work / NOTES).write_text(notes, encoding="utf-8")
    return Export(exporter.title, verification, [*_common_limits(exported), *exporter.describe(exported)])


def _direction(facts: dict[str, Any], source: str | None, target: str | None, *, required: bool) -> Direction | None:
    """The languages of the export; None if the model has several directions and none is chosen."""
    directions = directions_of(facts)
    if not directions and source and target:
        return source, target  # the model does not tell
    if source or target:
        target = choose_target(directions, source, target)
        directions = [pair for pair in directions if target == pair[1] and source in (None, pair[0])]
    if len(directions) == 1:
        return directions[0]
    if required or source or target:
        raise ConfigError("this export is for one pair of languages; name them with --from and --target")
    return None


def _common_limits(exported: Exported) -> list[str]:
    """What differs in every other toolkit, as sentences."""
    facts, tags = exported.facts, exported.vocabulary.tags
    limits = []
    if facts.get("source_tags"):
        limits.append(
            "The tokenizer's src_lang is the language of the source, and forced_bos_token_id that of the output."
        )
    elif tags and exported.direction is None:
        written = ", ".join(f"`{tag}`" for tag in tags.values())
        limits.append(f"A tag and a space before every source select the target language: {written}.")
    if facts.get("by_sentence"):
        limits.append("The model translates single sentences: split texts into sentences before they are translated.")
    if facts.get("context"):
        limits.append("The sentence before, which the model can read (data.context), is not given to it.")
    limits.append(
        f"Sources above {exported.max_source_length} tokens are neither split nor refused; the model was not trained "
        "with them."
    )
    limits.append(
        "Text is passed as it is: addresses, placeholders and numbers are not protected, and there is no glossary. "
        "The characters U+2581, U+FFFD and U+E100 to U+E111, which `transduce translate` escapes, are read as spaces "
        "or symbols."
    )
    return limits


def _readme(exported: Exported, exporter: Exporter, name: str, verified: Verification, notes: str) -> str:
    """The content of README.md; `notes` is that of the original."""
    directions = directions_of(exported.facts)
    if exported.direction:
        directions = [exported.direction]
    languages = sorted({code for pair in directions for code in pair})
    header = ["---", *(["language:", *(f"- {code}" for code in languages)] if languages else [])]
    header += ["pipeline_tag: translation", "---"]
    parts = [
        "\n".join(header),
        f"# {name}",
        f"A translation model that was trained with transduce, exported for {exporter.title}.",
        f"It translates {describe_directions(directions)}." if directions else "",
        f"```python\n{exporter.usage(exported, name)}```",
        "## Verification",
        f"Verified by {verified}.",
        "## Differences from `transduce translate`",
        "\n".join(f"- {limit}" for limit in [*_common_limits(exported), *exporter.describe(exported)]),
        f"{ORIGINAL_NOTES}\n\n{notes.strip()}" if notes.strip() else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


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
    if exported.facts.get("source_tags"):
        return _multilingual_samples(exported, texts)
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


def _multilingual_samples(exported: Exported, texts: Sequence[str]) -> Samples:
    """The same for a model that reads both languages; its codes of them begin the text that is typed."""
    names, directions = exported.vocabulary.tags, [exported.direction or pair for pair in directions_of(exported.facts)]
    step = max(1, len(directions) // len(texts))
    pairs = [directions[n * step % len(directions)] for n in range(len(texts))]
    marked = [mark(text, TargetLanguage(target, source)) for text, (source, target) in zip(texts, pairs, strict=True)]
    typed = [f"{names[source]} {names[target]} {text}" for text, (source, target) in zip(texts, pairs, strict=True)]
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
        return forced_logits(self._model, self._encode(text), output)

    def translate(self, texts: Sequence[str], limits: Sequence[int]) -> list[list[int]]:
        return greedy(self._model, [self._encode(text) for text in texts])[0]

    def _encode(self, text: str) -> list[int]:
        if not (names := getattr(self._tokenizer, "languages", {})):
            return self._tokenizer.encode(text)
        source, target, rest = text.split(" ", 2)
        codes = {name: code for code, name in names.items()}
        return self._tokenizer.encode_all([mark(rest, TargetLanguage(codes[target], codes[source]))], marked=True)[0]


def _at(text: str) -> str:
    return f"for the source {text!r:.80}, "
