"""The models that a server offers, by name and by language pair, and detection of the language of a text."""

import copy
import math
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transduce.deadline import check_deadline
from transduce.errors import ConfigError
from transduce.files.languages import LANGUAGES, language_name
from transduce.files.scripts import known_scripts, script
from transduce.serve.limits import HttpError
from transduce.translation.translator import Translator

AUTO = "auto"
"""The source language of a request whose language is to be detected, or that is not known."""

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)=(.+)", re.DOTALL)
_PAIR = re.compile(r"(?:.*[-_.])?([a-z]{2})-([a-z]{2})")

_MAX_CHARACTERS = 1_000
"""Characters of a text that are considered, which bounds the time."""
DETECTION_COST = 400
"""Cost of detecting the language of a text, in characters that are translated."""
_CERTAIN = 0.9
"""Probability from which a text is not taken for one in another language, although that one could be translated."""
_PROBABLE, _IMPROBABLE = 0.6, 0.1
"""Probability from which a language is named, and below which no language of the models is possible."""


@dataclass(frozen=True)
class ServedModel:
    """A model with its name and directions; a language that is not known is None and matches any."""

    name: str
    translator: Translator
    directions: Sequence[tuple[str | None, str | None]]
    """Source and target language of each direction, as stored with the model, otherwise as its name tells."""

    def supports(self, source: str, target: str) -> bool:
        """Whether the model translates between these languages."""
        return any(
            (model_source is None or source in (model_source, AUTO)) and model_target in (None, target)
            for model_source, model_target in self.directions
        )

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
        pairs = [f"{source} to {target}" for model in self.models for source, target in model.target_names()]
        raise HttpError(400, f"no model for this language pair; available: {', '.join(pairs)}")


@dataclass(frozen=True)
class Detected:
    """What is known about the language of a text."""

    language: str | None
    """None if it is not certain."""
    probability: float
    available: bool
    """Whether a model may be able to read it."""


class Detector:
    """Ranks languages by py3langid's probabilities, restricted to the languages of the models."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models
        served = {code: None for model in models.models for pair in model.directions for code in pair if code}
        self._codes = {code.partition("-")[0]: code for code in reversed(served)} or {code: code for code in LANGUAGES}
        """The served code of each language that can be detected; any language, if none is known."""
        self._lock = threading.Lock()
        self._identifier: Any = None
        self._of_all: Any = None
        """Like `_identifier`, for all languages with a name."""

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Languages with their probabilities, most probable first; none if the text has no letters."""
        text = text[:_MAX_CHARACTERS]
        if not any(map(str.isalpha, text)):
            return []
        with self._lock:  # loading takes a second
            if self._identifier is None:
                self._load()
            ranking = self._identifier.rank(text)
        return [(self._codes[code], float(probability)) for code, probability in ranking]

    def source(self, text: str, target: str) -> tuple[str, float]:
        """The most probable source language among those that are translated to the target, and its probability.

        It is the target itself if the text certainly is in that language, and AUTO with probability 0 if the source
        languages are not known. A text that certainly is in a language without this target is an error.
        """
        sources = [
            source
            for model in self._models.models
            for source, model_target in model.directions
            if source and model_target in (None, target)
        ]
        if not sources:
            return AUTO, 0.0
        check_deadline()
        ranked = dict(self.rank(text))
        best = max(sources, key=lambda code: ranked.get(code, 0.0))
        first = max(ranked, key=lambda code: ranked[code], default=best)
        if first not in sources and ranked[first] >= _CERTAIN:
            if first != target:
                names = [f"{language_name(code)} ({code})" for code in (first, target)]
                raise HttpError(400, f"the text is in {names[0]}, which no model translates to {names[1]}")
            best = target
        return best, ranked.get(best, 0.0)

    def detect(self, text: str) -> Detected:
        """The language of a text, which may be one that no model reads, if it is certain."""
        text = text[:_MAX_CHARACTERS]
        if not (ranking := self.rank(text)):
            return Detected(None, 0.0, True)
        best, probability = ranking[0]
        with self._lock:
            others = {self._codes.get(code, code): float(share) for code, share in self._of_all.rank(text)}
        first = max(others, key=others.__getitem__)
        letters = [name for name in map(script, text) if name]
        readable = 2 * sum(name in self._scripts for name in letters) >= len(letters)
        served = sum(others.get(code, 0.0) for code in self._codes.values())
        if not readable or (first not in self._codes.values() and served < _IMPROBABLE and others[first] >= _PROBABLE):
            certain = others[first] >= _PROBABLE and first not in self._codes.values()
            return Detected(first if certain else None, others[first] if certain else 0.0, False)
        certain = probability >= _PROBABLE and 2 * others.get(best, 1.0) >= others[first]
        return Detected(best if certain else None, probability if certain else 0.0, True)

    @cached_property
    def _scripts(self) -> frozenset[str]:
        """The scripts that a model can read."""
        tokenizers = [model.translator.tokenizer for model in self._models.models]
        return frozenset(
            name for tokenizer in tokenizers for name in known_scripts(tokenizer.pieces(range(tokenizer.vocab_size)))
        )

    def _load(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._of_all = copy.copy(identifier)
        self._of_all.set_languages([code for code in {*LANGUAGES, *self._codes} if code in identifier.labels])
        identifier.set_languages([code for code in self._codes if code in identifier.labels])
        sources = Counter(source for model in self._models.models for source, _ in model.directions)
        # A language from which more directions start is the more probable one if a text is short.
        identifier.nb_pc = identifier.nb_pc + [
            math.log(sources[self._codes[label]] or 1) for label in identifier.nb_classes
        ]
        self._identifier = identifier
