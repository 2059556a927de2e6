"""The models of a server, by name and by language."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import ConfigError
from transduce.serve.refusals import Refusal
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
    """A model under its name; languages that the name does not tell are None, and then any fits."""

    name: str
    translator: Translator
    source: str | None
    target: str | None

    def fits(self, source: str, target: str) -> bool:
        """Whether it translates between these."""
        return (self.source is None or source in (self.source, AUTO)) and (self.target is None or target == self.target)


def languages_of(name: str) -> tuple[str | None, str | None]:
    """Source and target as a name tells them: `de`, `en-de`, `anything-en-de`."""
    pair = _PAIR.fullmatch(name)
    if pair and LANGUAGES.keys() >= set(pair.groups()):
        return pair[1], pair[2]
    return None, name if name in LANGUAGES else None


def split_name(words: str) -> tuple[str, Path]:
    """Name and folder from `NAME=FOLDER`, or from a folder, whose own name then counts."""
    named = _NAMED.fullmatch(words)
    if named:
        return named[1], Path(named[2])
    path = Path(words)
    return path.resolve().name, path


class Catalogue:
    """What the server offers; the first model is the one meant where none is named."""

    def __init__(self, translators: Sequence[tuple[str, Translator]]) -> None:
        names = [name for name, _ in translators]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"two models are named {twice.pop()}; name them apart: -m NAME=FOLDER")
        self.models = [ServedModel(name, translator, *languages_of(name)) for name, translator in translators]

    def by_name(self, name: str | None) -> ServedModel:
        """The model so named."""
        found = next((model for model in self.models if name in (None, model.name)), None)
        if found is None:
            raise Refusal(400, f"no such model; there are: {', '.join(model.name for model in self.models)}")
        return found

    def by_languages(self, source: str, target: str) -> ServedModel:
        """The first model that translates between these languages, or whose name is the target."""
        found = next((model for model in self.models if model.fits(source, target) or model.name == target), None)
        if found is None:
            offered = [f"{model.source or AUTO} to {model.target or model.name}" for model in self.models]
            raise Refusal(400, f"no model translates so; there are: {', '.join(offered)}")
        return found
