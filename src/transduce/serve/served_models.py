"""The models that a server offers, by name and by language pair."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import ConfigError
from transduce.files.languages import LANGUAGES, TargetLanguage, describe_directions
from transduce.serve.limits import HttpError
from transduce.translation.detection import AUTO, Detector
from transduce.translation.translator import Translator

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)=(.+)", re.DOTALL)
_PAIR = re.compile(r"(?:.*[-_.])?([a-z]{2})-([a-z]{2})")


@dataclass(frozen=True)
class ServedModel:
    """A model with its name and directions; a language that is not known is None and matches any."""

    name: str
    translator: Translator
    directions: Sequence[tuple[str | None, str | None]]
    """Source and target language of each direction, as stored with the model, otherwise as its name tells."""

    def supports(self, source: str, target: str) -> bool:
        """Whether the model translates between these languages."""
        languages = self.translator.languages
        source, target = (languages.code(name) or "" if name != AUTO else name for name in (source, target))
        return any(
            (model_source is None or source in (model_source, AUTO)) and model_target in (None, target)
            for model_source, model_target in self.directions
        )

    def target(self, target: str, source: str = AUTO) -> str | None:
        """The target language that the translator needs, if it has several, with the source if it reads that too."""
        if not self.translator.tagged:
            return None
        return TargetLanguage(target, source) if self.translator.languages.source_tags and source != AUTO else target

    def target_names(self) -> list[tuple[str, str]]:
        """Source and target of each direction for lists; the name of the model stands for an unknown target."""
        return [(source or AUTO, target or self.name) for source, target in self.directions]


def parse_languages(name: str) -> tuple[str | None, str | None]:
    """The source and target language that a model name contains: `de`, `en-de` or `anything-en-de`."""
    pair = _PAIR.fullmatch(name)
    if pair and LANGUAGES.keys() >= set(pair.groups()):
        return pair[1], pair[2]
    return None, name if name in LANGUAGES else None


def parse_model_option(value: str) -> tuple[str, Path]:
    """The name and folder of `NAME=FOLDER`; without a name, the model is named after its folder."""
    named = _NAMED.fullmatch(value)
    if named:
        return named[1], Path(named[2])
    path = Path(value)
    return path.resolve().name, path


def require_different(names: Sequence[str]) -> None:
    """Raise an error if two models have the same name."""
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"two models are named {duplicates.pop()}; give them different names: -m NAME=FOLDER")


class ServedModels:
    """All translation models of a server; the first is the default."""

    def __init__(self, translators: Sequence[tuple[str, Translator]]) -> None:
        require_different([name for name, _ in translators])
        self.models = [
            ServedModel(name, translator, translator.directions or [parse_languages(name)])
            for name, translator in translators
        ]

    def by_name(self, name: str | None) -> ServedModel:
        """The model with this name; None is the default model."""
        for model in self.models:
            if name in (None, model.name):
                return model
        raise HttpError(400, f"no such model; available: {', '.join(model.name for model in self.models)}")

    def by_languages(self, source: str, target: str) -> ServedModel:
        """The first model that translates between these languages, or whose name is the target."""
        for model in self.models:
            if model.supports(source, target) or model.name == target:
                return model
        pairs = [describe_directions(model.target_names()) for model in self.models]
        raise HttpError(400, f"no model for this language pair; available: {', '.join(pairs)}")

    def detector(self) -> Detector:
        """What detects the language of texts, among those of the models."""
        directions = [pair for model in self.models for pair in model.directions]
        return Detector(directions, [model.translator.tokenizer for model in self.models])
