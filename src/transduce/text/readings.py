"""Abbreviations that models misread, and the words that they read instead: "Sept. 2019" was "Sieben. 2019"."""

import re
import tomllib
from collections.abc import Collection
from functools import cache
from importlib import resources

from transduce.text.abbreviations import base_language
from transduce.text.symbols import SLOTS, SPACE_MARK

ABBREVIATION = re.compile(r"\w\.[\s,]")
"""What a text with an abbreviation contains."""
_NUMBER = rf"[\d{''.join(SLOTS)}]"
_PLACES = {
    "before_number": rf"{{}}(?=\s{_NUMBER})",
    "after_number": rf"(?<={_NUMBER}\s){{}}",
    "before_comma": r"{}(?=,)",
    "before_name": r"{}(?=\s(?-i:[^\W\d_a-z]))",
    "before_word": r"{}(?=\s\w)",
}
"""Patterns of what must be beside an abbreviation, which takes the place of the braces."""


class Readings:
    """The abbreviations of a language, and what a model reads instead."""

    def __init__(self, language: str | None, pieces: Collection[str]) -> None:
        """There are none if less than half of the words are tokens of the vocabulary: it is that of other text."""
        tables = _tables().get(base_language(language) or "", {})
        self._readings = {short: reading for table in tables.values() for short, reading in table.items()}
        words = {word for reading in self._readings.values() for word in reading.split()}
        self._pattern: re.Pattern[str] | None = None
        if words and 2 * sum(f"{SPACE_MARK}{word}" in pieces for word in words) >= len(words):
            patterns = [
                _PLACES[place].format(f"(?:{'|'.join(map(re.escape, table))})") for place, table in tables.items()
            ]
            self._pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(patterns)})", re.IGNORECASE)

    def read(self, text: str) -> str:
        """The text with words in place of the abbreviations."""
        return self._pattern.sub(self._reading, text) if self._pattern else text

    def _reading(self, abbreviation: re.Match[str]) -> str:
        reading = self._readings[abbreviation[0].lower()]
        return reading if abbreviation.start() else reading[0].upper() + reading[1:]


@cache
def _tables() -> dict[str, dict[str, dict[str, str]]]:
    text = (resources.files("transduce") / "text" / "readings.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, dict[str, str]]] = tomllib.loads(text)
    return tables
