"""Abbreviations that models misread, and the words that they read instead: "Sept. 2019" was "Sieben. 2019"."""

import re
import tomllib
from collections.abc import Collection, Iterable
from functools import cache
from importlib import resources

from transduce.text.abbreviations import base_language
from transduce.text.symbols import SLOTS, SPACE_MARK

ABBREVIATION = re.compile(r"\w\.[\s,:]")
"""What a text with an abbreviation contains."""
_NUMBER = rf"[\d{''.join(SLOTS)}]"
_PLACES = {
    "before_number": rf"{{}}(?=\s{_NUMBER})",
    "after_number": rf"(?<={_NUMBER}\s){{}}(?=\s\w|,)",
    "after_ordinal": r"(?<=\d\.\s){}(?=\s\w|,)",
    "before_comma": r"{}(?=,)",
    "before_colon": r"{}(?=\s?:)",
    "before_name": r"{}(?=\s(?-i:[^\W\d_a-z]))",
    "before_word": r"{}(?=\s\w)",
}
"""Patterns of what must be beside an abbreviation, which takes the place of the braces."""


class Readings:
    """The abbreviations of a source language, and what a model reads instead."""

    def __init__(self, languages: Iterable[str | None], pieces: Collection[str]) -> None:
        """The source has one of these languages; each counts if half of its words are tokens of the vocabulary."""
        self._readings: dict[str, str] = {}
        in_lower_case: dict[str, set[str]] = {}
        patterns = []
        for language in languages:
            tables = _tables().get(base_language(language) or "", {})
            own = {short: reading for table in tables.values() for short, reading in table.items()}
            words = {word for reading in own.values() for word in reading.split()}
            if 2 * sum(f"{SPACE_MARK}{word}" in pieces for word in words) < len(words):
                continue
            self._readings |= own
            for short, reading in own.items():
                in_lower_case.setdefault(short.lower(), set()).add(reading)
            patterns += [
                _PLACES[place].format(f"(?:{'|'.join(map(re.escape, table))})") for place, table in tables.items()
            ]
        # "Sept." is German and "sept." is French; if there is no choice, "SEPT." is the same.
        self._in_lower_case = {short: min(readings) for short, readings in in_lower_case.items() if len(readings) == 1}
        self._pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(patterns)})", re.IGNORECASE) if patterns else None

    def read(self, text: str) -> str:
        """The text with words in place of the abbreviations."""
        return self._pattern.sub(self._reading, text) if self._pattern else text

    def _reading(self, found: re.Match[str]) -> str:
        reading = self._readings.get(found[0]) or self._in_lower_case.get(found[0].lower(), found[0])
        return reading if found.start() else reading[0].upper() + reading[1:]


@cache
def _tables() -> dict[str, dict[str, dict[str, str]]]:
    text = (resources.files("transduce") / "text" / "readings.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, dict[str, str]]] = tomllib.loads(text)
    return tables
