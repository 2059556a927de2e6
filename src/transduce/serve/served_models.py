"""The models that a server offers, by name and by language pair."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import ConfigError
from transduce.serve.errors import HttpError
from transduce.translator import Translator

LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish",
    "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian",
    "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician",
    "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian",
    "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "ko": "Korean",
    "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian",
    "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil",
    "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
AUTO = "auto"

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)=(.+)", re.DOTALL)
_PAIR = re.compile(r"(?:.*[-_.])?([a-z]{2})-([a-z]{2})")


@dataclass(frozen=True)
class ServedModel:
    """A model with its name and languages; a language that the name does not contain is None and matches any."""

    name: str
    translator: Translator
    source: str | None
    target: str | None

    def supports(self, source: str, target: str) -> bool:
        """Whether the model translates between these languages."""
        return (self.source is None or source in (self.source, AUTO)) and (self.target is None or target == self.target)


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


class ServedModels:
    """All models of a server; the first is the default."""

    def __init__(self, translators: Sequence[tuple[str, Translator]]) -> None:
        names = [name for name, _ in translators]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"two models are named {duplicates.pop()}; give them different names: -m NAME=FOLDER")
        self.models = [ServedModel(name, translator, *parse_languages(name)) for name, translator in translators]

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
        pairs = [f"{model.source or AUTO} to {model.target or model.name}" for model in self.models]
        raise HttpError(400, f"no model for this language pair; available: {', '.join(pairs)}")
