"""Exporting a model: write it, verify it with a program that runs it, and only then let its folder appear."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transduce.config import build
from transduce.disk import atomic_folder
from transduce.errors import ConfigError, ModelError
from transduce.features import Registry
from transduce.files.languages import Direction, choose_target, describe_directions
from transduce.interop.export.exporter import CARD, ORIGINAL_NOTES, VOCABULARY, Exported, Exporter
from transduce.interop.export.verify import Verification, compare_outputs, make_samples, sample_texts, verify
from transduce.interop.vocabulary import export_vocabulary
from transduce.models.folder import NOTES, card_text, load_model, read_card, read_notes
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import EOS

EXPORTERS: Registry[Exporter] = Registry("exporters")
"""The formats, by the name that `transduce export --to` takes."""


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
        raise ConfigError(f"--to must be one of {', '.join(EXPORTERS)}, not {to!r:.40}")
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
        languages = sorted({target for _, target in facts.get("directions", [])}) if tagged else []
        vocabulary = export_vocabulary(saved.tokenizer, languages)
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from None
    exported = Exported(
        model,
        saved.tokenizer,
        vocabulary,
        facts,
        build(SearchConfig, facts.get("search", {}), str(folder)),
        _direction(facts, source, target, required=exporter.one_direction),
        min(facts.get("max_length", 256), model.longest or 2**16),
    )
    texts = sample_texts(saved.tokenizer) if sentences is None else list(sentences)
    if not texts:
        raise ConfigError("no sentences to verify the export with; give a file with at least one line")
    with atomic_folder(out) as work:
        samples = make_samples(exported, texts)
        exporter.write(exported, work)
        verification = verify(exported, exporter.consumer(exported, work), samples)
        if quantization == "int8":
            exported = replace(exported, quantization=quantization)
            exporter.write(exported, work)
            identical, _ = compare_outputs(exporter.consumer(exported, work), samples)
            verification = replace(verification, identical_int8=identical)
        # The rows of markers that are never produced: other toolkits leave them out, or give them another bias.
        weights = model.state_dict()
        markers = {name: weights[name][:EOS].tolist() for name in VOCABULARY if name in weights}
        card = read_card(folder) | {"markers": markers}
        (work / CARD).write_text(card_text(card), encoding="utf-8")
        notes = _readme(exported, exporter, out.name, verification, read_notes(folder))
        (work / NOTES).write_text(notes, encoding="utf-8")
    return Export(exporter.title, verification, [*_common_limits(exported), *exporter.limits(exported)])


def _direction(facts: dict[str, Any], source: str | None, target: str | None, *, required: bool) -> Direction | None:
    """The languages of the export; None if the model has several directions and none is chosen."""
    directions = [(a, b) for a, b in facts.get("directions", [])]
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
    if tags and exported.direction is None:
        written = ", ".join(f"`{tag}`" for tag in tags.values())
        limits.append(f"A tag and a space before every source select the target language: {written}.")
    if facts.get("by_sentence"):
        limits.append("The model translates single sentences: split texts into sentences before they are translated.")
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
    directions = [(a, b) for a, b in exported.facts.get("directions", [])]
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
        "\n".join(f"- {limit}" for limit in [*_common_limits(exported), *exporter.limits(exported)]),
        f"{ORIGINAL_NOTES}\n\n{notes.strip()}" if notes.strip() else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
