"""Rules for text as data: those of a language are in a file such as en.toml, those of every language in common.toml.

Tables of a language (lists are separated by white space; an entry in lower case matches any case, others only as they
are written, or in capitals):

- `sentences`: whether a full stop ends a sentence.
  - `never`: words that are never the last of a sentence: "Dr. Brown".
  - `sometimes`: the last only if the next word is a starter: "Inc. The" but "Inc. Magazine".
  - `numbered`: not the last if a number follows: "No. 5".
  - `starters`: words that often start a sentence and rarely follow an abbreviation, a number or an initial.
  - `endings`: endings of words that count as `sometimes`: "Goethestr. 5".
  - `ordinals`: whether "3." means "third"; `after_ordinals`: words with a capital letter before which it does, even at
    the start of a line.
  - `before_I`: words after which "I." ends a sentence.
- `expansions`: abbreviations that models misread, with the words that they stand for, by what must be beside them. At
  the start of a text, the words get a capital letter.
- `address`: words that address a reader in the `formal` or the `informal` way. An entry with a capital does not count
  at the start of a sentence, where every word has one.

- `numbers` and `negation`: what translation/checks.py looks for in a source, and in its output.
  - `from_one`, `tens`, `others`: words of numbers, as patterns; `joints` are between the words of one number, `endings`
    after it. `also`: words that may stand for a number in an output. `half`: words for a half. `scales`: words for a
    million and more, with the number of their zeros.
  - `times`: patterns of times, in which HOUR is a number up to twelve, with the minutes that are added to the hour.
    `before_time`: what must be before a time in a source; `between_times`: words before and between several that may
    share a unit; `after_duration`: what may follow two times only if they are durations.
    `capital_nouns`: whether all nouns have a capital letter.
  - `words`: those that negate; `also`: those that may do so in an output.

`examples` are run as tests (tests/translation/test_rules.py).
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from transduce.files.languages import base_language

_REFERENCE = re.compile(r"\(\?&(\w+)\)")


@dataclass(frozen=True)
class Abbreviations:
    """What decides whether a full stop ends a sentence in a language: the table `sentences`."""

    never: frozenset[str]
    sometimes: frozenset[str]
    numbered: frozenset[str]
    starters: frozenset[str]
    endings: tuple[str, ...]
    ordinals: bool
    after_ordinals: frozenset[str]
    before_i: frozenset[str]

    @classmethod
    def of(cls, language: str | None) -> "Abbreviations":
        """The table of a language, given as a code; the union of all tables if there is none for it."""
        return _by_language(base_language(language))

    def is_ordinal_before(self, word: str) -> bool:
        """Whether "1." means "first" before this word, at the start of a line; otherwise it numbers a list."""
        return self.ordinals and (word in self.after_ordinals or word[0].islower())


@cache
def common() -> dict[str, Any]:
    return _read("common")


@cache
def locales() -> dict[str, Any]:
    """How each language writes numbers; see translation/locale.py."""
    return _read("locales")


@cache
def rules_of(code: str | None) -> dict[str, Any]:
    """The rules of a language, by its two-letter code; empty if there are none for it."""
    return _read(code) if code in languages() else {}


@cache
def languages() -> list[str]:
    files = (file.name.partition(".") for file in resources.files(__name__).iterdir())
    return sorted(name for name, _, ending in files if ending == "toml" and name not in ("common", "locales"))


def pattern(source: str) -> str:
    """A pattern of the rules as Python's: in one line, with the parts and words that it refers to."""
    words, parts = common()["words"], common()["parts"]

    def referred(name: re.Match[str]) -> str:
        return f"(?:{pattern(parts[name[1]]) if name[1] in parts else '|'.join(words[name[1]].split())})"

    return _REFERENCE.sub(referred, "".join(line.strip() for line in source.split("\n")))


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=64)
def _by_language(code: str | None) -> Abbreviations:
    chosen = [rules_of(name)["sentences"] for name in languages() if code == name or code not in languages()]
    never, sometimes, numbered, starters, endings, after_ordinals = (
        frozenset(word for table in chosen for word in table.get(key, "").split())
        for key in ("never", "sometimes", "numbered", "starters", "endings", "after_ordinals")
    )
    ordinals = code is None or bool(rules_of(code).get("sentences", {}).get("ordinals"))
    before_i = frozenset(rules_of(code or "en").get("sentences", {}).get("before_I", "").split())
    # A word of a union may be in "never" of one language and in "sometimes" of another.
    return Abbreviations(
        never - sometimes, sometimes, numbered, starters, tuple(endings), ordinals, after_ordinals, before_i
    )


def matches(word: str, entries: frozenset[str]) -> bool:
    """Whether a word is in a list of the table; entries in lower case match any case, others also all capitals."""
    return word in entries or word.lower() in entries or (word.isupper() and word.capitalize() in entries)
