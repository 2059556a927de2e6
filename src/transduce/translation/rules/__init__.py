"""Abbreviations, ordinals and frequent first words of sentences, by language."""

import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources


@dataclass(frozen=True)
class Abbreviations:
    """What decides whether a full stop ends a sentence in a language; see abbreviations.toml."""

    never: frozenset[str]
    sometimes: frozenset[str]
    numbered: frozenset[str]
    starters: frozenset[str]
    endings: tuple[str, ...]
    ordinals: bool
    after_ordinals: frozenset[str]

    @classmethod
    def of(cls, language: str | None) -> "Abbreviations":
        """The table of a language, given as a code; the union of all tables if there is none for it."""
        return _by_language(base_language(language))

    def is_ordinal_before(self, word: str) -> bool:
        """Whether "1." means "first" before this word, at the start of a line; otherwise it numbers a list."""
        return self.ordinals and (word in self.after_ordinals or word[0].islower())


def base_language(language: str | None) -> str | None:
    """The two-letter code of a language: "de" for "de-AT" and "deu"; "no" for "nb"."""
    if not language:
        return None
    code = language.replace("_", "-").split("-")[0].lower()
    return _tables()["aliases"].get(code, code)


@cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(
        (resources.files("transduce") / "translation" / "abbreviations.toml").read_text(encoding="utf-8")
    )


@lru_cache(maxsize=64)
def _by_language(code: str | None) -> Abbreviations:
    tables = {name: table for name, table in _tables().items() if name != "aliases"}
    chosen = [tables[code]] if code in tables else list(tables.values())
    never, sometimes, numbered, starters, endings, after_ordinals = (
        frozenset(word for table in chosen for word in table.get(key, "").split())
        for key in ("never", "sometimes", "numbered", "starters", "endings", "after_ordinals")
    )
    ordinals = code is None or bool(tables.get(code, {}).get("ordinals"))
    # A word of a union may be in "never" of one language and in "sometimes" of another.
    return Abbreviations(never - sometimes, sometimes, numbered, starters, tuple(endings), ordinals, after_ordinals)


def matches(word: str, entries: frozenset[str]) -> bool:
    """Whether a word is in a list of the table; entries in lower case match any case, others also all capitals."""
    return word in entries or word.lower() in entries or (word.isupper() and word.capitalize() in entries)
