"""Exporting a model: write it, verify it with a program that runs it, and only then let its folder appear."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transduce.config import build
from transduce.disk import atomic_folder
from transduce.errors import ConfigError, ModelError
from transduce.features import Registry
from transduce.files.languages import Direction, choose_target
from transduce.interop.export.exporter import CARD, Exported, Exporter, Quantization
from transduce.interop.export.readme import common_limits, readme
from transduce.interop.export.verify import Verification, compare_outputs, make_samples, sample_texts, verify
from transduce.interop.export.vocabulary import export_vocabulary
from transduce.interop.export.weights import marker_rows
from transduce.models.folder import NOTES, card_text, load_model, read_card, read_notes
from transduce.search.options import SearchConfig

EXPORTERS: Registry[Exporter] = Registry("exporters")
"""The formats, by the name that `transduce export --to` takes."""


@dataclass(frozen=True)
class Export:
    """What was written."""

    title: str
    verification: Verification
    limits: list[str]


def export_model(
    folder: Path,
    to: str,
    out: Path,
    *,
    quantization: Quantization = "float32",
    source: str | None = None,
    target: str | None = None,
    sentences: Sequence[str] | None = None,
) -> Export:
    """Write a model folder in another format, atomically as a new folder.

    It appears only if another program computes the same logits and greedy outputs, for these sentences or for random
    ones. `source` and `target` select one direction of a model with several.
    """
    exporter = _exporter(to, quantization)
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
        card = read_card(folder) | {"markers": marker_rows(model)}
        (work / CARD).write_text(card_text(card), encoding="utf-8")
        notes = readme(exported, exporter, out.name, verification, read_notes(folder))
        (work / NOTES).write_text(notes, encoding="utf-8")
    return Export(exporter.title, verification, [*common_limits(exported), *exporter.limits(exported)])


def _exporter(to: str, quantization: Quantization) -> Exporter:
    if to not in EXPORTERS:
        raise ConfigError(f"--to must be one of {', '.join(EXPORTERS)}, not {to!r:.40}")
    exporter = EXPORTERS[to]
    if quantization not in exporter.quantizations:
        raise ConfigError(f"--quantization of {to} must be {' or '.join(exporter.quantizations)}")
    return exporter


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
