"""Languages: their codes, and the directions that file names and models tell."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from transduce.errors import ConfigError, DataError
from transduce.files.files import COMPRESSIONS

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
"""The name of each language that is recognised in names of files and models."""
LANGUAGE_ALIASES = {
    "eng": "en", "deu": "de", "ger": "de", "fra": "fr", "fre": "fr", "spa": "es", "ita": "it", "por": "pt",
    "nld": "nl", "dut": "nl", "swe": "sv", "dan": "da", "nb": "no", "nn": "no", "nob": "no", "nno": "no", "nor":
    "no", "fin": "fi", "pol": "pl", "ces": "cs", "cze": "cs", "slk": "sk", "hun": "hu", "ron": "ro", "rum":
    "ro", "rus": "ru", "ukr": "uk", "bul": "bg", "ell": "el", "gre": "el", "tur": "tr", "vie": "vi", "ind":
    "id", "hin": "hi", "ara": "ar", "zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "wuu": "zh", "lzh":
    "zh", "jpn": "ja",
}  # fmt: skip
"""Other codes of languages."""

Direction = tuple[str, str]
"""The code of the source language and of the target language."""

_MOST_NAMED = 12
"""Languages or directions that a message names."""
_CODE = "[a-z]{2,3}(?:-(?:[A-Z]{2}|[A-Z][a-z]{3}|[0-9]{3}))?"
_DIRECTION = re.compile(f"({_CODE})-({_CODE})")
_PAIR_IN_NAME = re.compile(r"(?<![A-Za-z0-9])([a-z]{2})[-_]([a-z]{2})(?![A-Za-z0-9])")
_TEXT_SUFFIX = ".txt"


class TargetLanguage(str):
    """The code of a target language that also tells the source language, for models that read the tags of both."""

    source: str

    def __new__(cls, code: str, source: str = "") -> "TargetLanguage":
        target = super().__new__(cls, code)
        target.source = source
        return target


def source_of(target: str | None) -> str | None:
    """The source language that a target language tells."""
    return target.source if isinstance(target, TargetLanguage) else None


def directions_of(facts: Mapping[str, Any]) -> list[Direction]:
    """The directions that the card of a model tells: a list, or all pairs of its languages."""
    codes = facts.get("languages", {})
    every = [(source, target) for source in codes for target in codes if source != target]
    return [(source, target) for source, target in facts.get("directions", [])] or every


def base_language(language: str | None) -> str | None:
    """The two-letter code of a language: "de" for "de-AT" and "deu"; "no" for "nb"."""
    if not language:
        return None
    code = language.replace("_", "-").split("-")[0].lower()
    return LANGUAGE_ALIASES.get(code, code)


def is_language_code(code: str) -> bool:
    """Whether a code has the form of a language code: two or three letters and perhaps a region, e.g. pt-BR."""
    return bool(re.fullmatch(_CODE, code))


def parse_direction(name: str) -> Direction:
    """The languages of a direction that is written en-de or en-pt-BR."""
    if not (match := _DIRECTION.fullmatch(name)):
        raise ConfigError(f"{name} is not a direction; write the source and the target language, e.g. en-de")
    return match[1], match[2]


def describe_directions(directions: Sequence[Direction]) -> str:
    """Directions for messages: "en to de, de to en"; of many, the languages."""
    if len(directions) > _MOST_NAMED:
        sources, targets = (dict.fromkeys(side) for side in zip(*directions, strict=True))
        named = (
            sources if set(sources) == set(targets) else [*sources, *(code for code in targets if code not in sources)]
        )
        return f"any of {len(sources)} languages to any of {len(targets)} ({name_some([*named])})"
    return ", ".join(f"{source} to {target}" for source, target in directions)


def name_some(names: Sequence[str]) -> str:
    """Names for messages, of which only the first are listed if there are many."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def language_name(code: str) -> str:
    """The English name of a language, or the code if the language has none here."""
    return LANGUAGES.get(code.partition("-")[0], code)


def direction_of_entry(files: Sequence[str]) -> Direction | None:
    """The languages of the first and the second side of a corpus entry by its file names; None if they do not tell."""
    names = [_plain_name(name) for name in files]
    if len(names) == 1:
        found = {(a, b) for a, b in _PAIR_IN_NAME.findall(names[0]) if {a, b} <= LANGUAGES.keys() and a != b}
        return found.pop() if len(found) == 1 else None
    first, second = (re.split(r"[._-]", name) for name in names)
    candidates = {(first[-1], second[-1])}
    if len(first) == len(second):
        different = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
        candidates |= {*different} if len(different) == 1 else set()
    found = {(a, b) for a, b in candidates if {a, b} <= LANGUAGES.keys() and a != b}
    return found.pop() if len(found) == 1 else None


def language_of_name(name: str | PurePath) -> str | None:
    """The language of a text file whose name ends in its code, e.g. news.de or news.de.gz; None if it does not tell."""
    code = _plain_name(str(name)).rpartition(".")[2]
    return code if code in LANGUAGES else None


def choose_target(directions: Sequence[Direction], source: str | None, target: str | None) -> str | None:
    """The target language of a request, checked against the directions of a model.

    If only one target language is possible, the request need not name it. For a model whose directions are not known,
    no language can be requested.
    """
    if not directions:
        if requested := target or source:
            raise DataError(
                f"this model does not tell its languages, so {requested} cannot be checked; leave it out, or train the "
                "model with data.src_lang and data.tgt_lang"
            )
        return None
    possible = [pair for pair in directions if source in (None, pair[0]) and target in (None, pair[1])]
    if not possible:
        requested = " ".join([*(["from", source] if source else []), *(["to", target] if target else [])])
        known = {code.lower(): code for pair in directions for code in pair if code}
        meant = [
            name and (known.get(name.lower()) or known.get(base_language(name) or "", "")) for name in (source, target)
        ]  # "" if a language is not known, None if none is requested
        is_possible = any(
            all(name in (None, code) for name, code in zip(meant, pair, strict=True)) for pair in directions
        )
        hint = f" (did you mean {' to '.join(filter(None, meant))}?)" if is_possible else ""
        raise DataError(
            f"this model does not translate {requested}{hint}; it translates {describe_directions(directions)}"
        )
    targets = list(dict.fromkeys(pair[1] for pair in possible))
    if len(targets) > 1:
        raise DataError(f"this model translates to {name_some(targets)}; choose the target language (to)")
    return targets[0]


@dataclass(frozen=True)
class ModelLanguages:
    directions: Sequence[Direction]
    """Empty if they are not known."""
    tagged: bool = False
    """Whether a tag selects the target language, as in multilingual models."""
    default_to: str | None = None
    """The target language that `transduce translate` takes if none is named and there are several."""
    source_tags: bool = False
    """Whether a tag tells the source language as well, as in M2M-100."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The model's names of its languages by our codes, if they differ: eng_Latn of NLLB is en."""

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> "ModelLanguages":
        """The languages that the card of a model tells."""
        tags = bool(facts.get("tagged")), facts.get("default_to"), bool(facts.get("source_tags"))
        return cls(directions_of(facts), *tags, facts.get("languages", {}))

    def code(self, name: str | None) -> str | None:
        """Our code of a language that a request may call by the model's name for it, or by another code."""
        if name is None or not self.names or name in self.names:
            return name
        codes = [code for code, other in self.names.items() if name.replace("-", "_") == other]
        codes = codes or [code for code in self.names if base_language(code) == base_language(name)]
        if len(codes) > 1:
            raise DataError(f"{name} is several languages of this model; choose {' or '.join(codes)}")
        return codes[0] if codes else name

    def target(self, to: str | None, source: str | None = None) -> str | None:
        """The target language of a request; None if it is not known.

        Raises a DataError if the model does not translate to that language (from `source`), or if it has several target
        languages and none is requested. If the model reads the source language as well, the result tells it, if it is
        known.
        """
        source, to = self.code(source or source_of(to)), self.code(to)
        if not self.tagged and to is None and source is None:
            return self.directions[0][1] if len(self.directions) == 1 else None
        target = choose_target(self.directions, source, to)
        if not self.source_tags or target is None:
            return target
        sources = {known for known, other in self.directions if other == target}
        source = sources.pop() if len(sources) == 1 else source
        return TargetLanguage(target, source) if source else target


def _plain_name(name: str) -> str:
    """A file name without the suffixes of compression and of plain text."""
    path = PurePath(PurePath(name).name)
    while path.suffix in (*COMPRESSIONS, _TEXT_SUFFIX):
        path = path.with_suffix("")
    return path.name
