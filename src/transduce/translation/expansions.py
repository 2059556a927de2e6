"""Expansion of abbreviations that models misread (text normalization): "Sept. 2019" was "Sieben. 2019"."""

import re
import tomllib
from collections.abc import Collection, Iterable
from functools import cache
from importlib import resources

from transduce.files.languages import base_language
from transduce.tokenizers.symbols import SLOTS, SPACE_MARK

ABBREVIATION = re.compile(r"\w\.[\s,:]")
"""What a text with an abbreviation contains."""
_NUMBER = rf"[\d{''.join(SLOTS)}]"
_PLACES = {
    "before_number": rf"{{0}}(?=\s{_NUMBER})",
    "beside_number": rf"{{0}}(?=\s{_NUMBER})|(?:(?<={_NUMBER}\s)|(?<=\d\.\s)){{0}}(?=\s\w|,)",
    "before_comma": r"{0}(?=,)",
    "before_colon": r"{0}(?=\s?:)",
    "before_name": r"{0}(?=\s(?-i:[^\W\d_a-z]))",
    "before_word": r"{0}(?=\s\w)",
}
"""Patterns of what must be beside an abbreviation, which takes the place of the braces."""


class Expansions:
    """The abbreviations of a source language, and the words that they stand for."""

    def __init__(self, languages: Iterable[str | None], pieces: Collection[str]) -> None:
        """The source has one of these languages; each counts if half of its words are tokens of the vocabulary."""
        self._expansions: dict[str, str] = {}
        in_lower_case: dict[str, set[str]] = {}
        patterns = []
        for language in languages:
            tables = _tables().get(base_language(language) or "", {})
            own = {short: full for table in tables.values() for short, full in table.items()}
            words = {word for full in own.values() for word in full.split()}
            if 2 * sum(f"{SPACE_MARK}{word}" in pieces for word in words) < len(words):
                continue
            self._expansions |= own
            for short, full in own.items():
                in_lower_case.setdefault(short.lower(), set()).add(full)
            patterns += [
                _PLACES[place].format(f"(?:{'|'.join(map(re.escape, table))})") for place, table in tables.items()
            ]
        # "Sept." is German and "sept." is French; if there is no choice, "SEPT." is the same.
        self._in_lower_case = {short: min(full) for short, full in in_lower_case.items() if len(full) == 1}
        self._pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(patterns)})", re.IGNORECASE) if patterns else None

    def expand(self, text: str) -> str:
        """The text with words in place of the abbreviations."""
        return self._pattern.sub(self._full, text) if self._pattern else text

    def _full(self, short: re.Match[str]) -> str:
        full = self._expansions.get(short[0]) or self._in_lower_case.get(short[0].lower(), short[0])
        return full if short.start() else full[0].upper() + full[1:]


@cache
def _tables() -> dict[str, dict[str, dict[str, str]]]:
    text = (resources.files("transduce") / "translation" / "expansions.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, dict[str, str]]] = tomllib.loads(text)
    return tables
