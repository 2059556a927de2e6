"""Other forms for text that models misread: rare characters, initialisms with full stops, and abbreviations.

What a model can read is told by its vocabulary.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from transduce.files.languages import base_language
from transduce.files.scripts import has_spaces, known_scripts, script
from transduce.tokenizers.symbols import SLOTS, SPACE_MARK
from transduce.translation.rules import common, rules_of
from transduce.translation.text import Context, Edit, Span, Stage, Text, join_neighbours, merge

_RULES = common()["normalize"]
_STAND_INS: Mapping[str, str] = _RULES["stand_ins"]
_LOW_QUOTES: Mapping[str, str] = _RULES["low_quotes"]
_INWARD_QUOTE, _INITIALISM = re.compile(_RULES["inward_quote"]), re.compile(_RULES["initialism"])
_RARE_CHARACTER = re.compile(f"[\u0300-\u036f\ufb00-\ufb06«»‹›{''.join(_STAND_INS)}]")
_RARE_FORM = re.compile(rf"{_RARE_CHARACTER.pattern}|[EU]\.[AKNSU]\.")
"""Finds an accent as a character of its own, a ligature such as "ﬁ", as text that is copied from a PDF may have, one of
these marks, such as the non-breaking hyphen of Word and the quotation marks of German books, or an initialism: "U.K.".
"""
_TRADEMARKS = "®™℠"
_NAME = re.compile(r"\w[\w'’-]*\Z")
_LONGEST_NAME = 50
_WORD = re.compile(r"\w[\w'’-]*")
_ABBREVIATION = re.compile(r"\w\.[\s,:]")
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


class Normalize(Stage):
    """Usual letters and marks for forms that the vocabulary lacks, „“ for »«, and "UK" for "U.K."."""

    name = "normalize"

    def __init__(self, readable: "Readable") -> None:
        self._readable = readable

    def apply(self, text: Text, context: Context) -> Text:
        if not _RARE_FORM.search(text.characters):
            return text
        readable = self._readable
        if readable.has_initialisms:
            text = text.edited([_without_full_stops(name) for name in _INITIALISM.finditer(text.characters)])
        if readable.characters.issuperset(_LOW_QUOTES.values()):
            text = text.substituted(_INWARD_QUOTE, lambda quote: _LOW_QUOTES[quote[0]])
        rare = {char for char in _RARE_CHARACTER.findall(text.characters) if char not in readable.characters}
        if any(map(unicodedata.combining, rare)):
            text = text.edited(list(_composed(text.characters)))
        usual = {char: _STAND_INS.get(char, _plain_letters(char)) for char in rare}
        forms = {char: form for char, form in usual.items() if readable.characters.issuperset(form)}
        return text.substituted(_RARE_CHARACTER, lambda char: forms.get(char[0], char[0]))


class Expand(Stage):
    """Expands abbreviations that models misread: "Sept. 2019" was "Sieben. 2019"."""

    name = "expand"

    def __init__(self, readable: "Readable", sources: Mapping[str | None, Collection[str]]) -> None:
        """`sources` are the languages that the source may have, by target language."""
        self._readable, self._sources = readable, sources
        self._expansions: dict[tuple[str | None, str | None], Expansions] = {}

    def apply(self, text: Text, context: Context) -> Text:
        if not _ABBREVIATION.search(text.characters):
            return text
        key = context.source, context.target
        if key not in self._expansions:
            sources = {context.source} if context.source else self._sources[context.target]
            self._expansions[key] = Expansions(sorted(sources), self._readable.pieces)
        return self._expansions[key].expand(text)


class Expansions:
    """The abbreviations of a source language, and the words that they stand for."""

    def __init__(self, languages: Iterable[str | None], pieces: Collection[str]) -> None:
        """The source has one of these languages; each counts if half of its words are tokens of the vocabulary."""
        self._expansions: dict[str, str] = {}
        in_lower_case: dict[str, set[str]] = {}
        patterns = []
        for language in languages:
            rules = rules_of(base_language(language)).get("expansions", {})
            tables = {place: table for place, table in rules.items() if place in _PLACES}
            expansions = {short: full for table in tables.values() for short, full in table.items()}
            words = {word for full in expansions.values() for word in full.split()}
            if 2 * sum(f"{SPACE_MARK}{word}" in pieces for word in words) < len(words):
                continue
            self._expansions |= expansions
            for short, full in expansions.items():
                in_lower_case.setdefault(short.lower(), set()).add(full)
            patterns += [
                _PLACES[place].format(f"(?:{'|'.join(map(re.escape, table))})") for place, table in tables.items()
            ]
        # "Sept." is German and "sept." is French; if there is no choice, "SEPT." is the same.
        self._in_lower_case = {short: min(full) for short, full in in_lower_case.items() if len(full) == 1}
        self._pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(patterns)})", re.IGNORECASE) if patterns else None

    def expand(self, text: Text) -> Text:
        return text.substituted(self._pattern, self._full) if self._pattern else text

    def _full(self, short: re.Match[str]) -> str:
        """The words of an abbreviation, with a capital letter at the start of a text."""
        full = self._expansions.get(short[0]) or self._in_lower_case.get(short[0].lower(), short[0])
        return full if short.start() else full[0].upper() + full[1:]


class Readable:
    """What a model can read, by its vocabulary: scripts, characters and words."""

    def __init__(self, vocabulary: Callable[[], Sequence[str]]) -> None:
        self._vocabulary = vocabulary

    @cached_property
    def pieces(self) -> dict[str, None]:
        return dict.fromkeys(self._vocabulary())

    @cached_property
    def scripts(self) -> frozenset[str]:
        return known_scripts(self.pieces)

    @cached_property
    def characters(self) -> frozenset[str]:
        """The characters of these scripts that it has, and all marks, in both cases."""
        characters = "".join(self.pieces)
        both = {*characters, *characters.lower(), *characters.upper()}
        return frozenset(char for char in both if script(char) in ("", *self.scripts))

    @cached_property
    def has_initialisms(self) -> bool:
        """Whether it knows initialisms without full stops."""
        return any(f"{SPACE_MARK}{name}" in self.pieces for name in ("UK", "US", "USA"))

    def unreadable(self, text: str) -> list[Span]:
        """The ranges of words that the model cannot read, and of symbols that its vocabulary does not have."""
        unknown = {*text} - self.characters
        if not any(char.isalnum() or _is_symbol(char) for char in unknown):
            return []
        words = foreign_words(text, self.scripts, {char for char in unknown if self._is_foreign_letter(char)})
        symbols = [
            Span(_start_of_mark(text, place), place + 1)
            for place, char in enumerate(text)
            if char in unknown and _is_symbol(char)
        ]
        return merge(words, symbols)

    def initialisms(self, text: str) -> list[Span]:
        """The initialisms, such as "U.K.", that get another form."""
        return [Span(*name.span()) for name in _INITIALISM.finditer(text)] if self.has_initialisms else []

    def _is_foreign_letter(self, char: str) -> bool:
        """Whether this is a letter, or a digit such as ², that occurs in words and that the vocabulary lacks.

        Ligatures and the like, which stand for known letters, do not count, nor do letters of scripts without spaces:
        they are in the same range as the words around them.
        """
        return has_spaces(char) and not self.characters.issuperset(_plain_letters(char))


def foreign_words(text: str, known: Collection[str], letters: Collection[str] = ()) -> list[Span]:
    """The ranges of words in scripts that are not known, or with one of these letters.

    Those with nothing but punctuation between them are one range.
    """

    def is_foreign(word: str) -> bool:
        return any(name and name not in known for name in map(script, word)) or any(char in letters for char in word)

    return join_neighbours(text, [Span(*word.span()) for word in _WORD.finditer(text) if is_foreign(word[0])])


def _composed(text: str) -> Iterator[Edit]:
    """NFC, for each character with those that may combine with it: marks, and vowels and finals of Hangul."""
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or not (
            unicodedata.category(text[place])[0] == "M" or "\u1160" <= text[place] < "\u1200"
        ):
            cluster = text[start:place]
            if (composed := unicodedata.normalize("NFC", cluster)) != cluster:
                yield start, place, composed
            start = place


def _without_full_stops(name: re.Match[str]) -> Edit:
    """The letters without full stops, except one that also ends a sentence: it keeps its place, for alignment.

    "US" as the whole text would be "us".
    """
    letters = name[0].replace(".", "")
    if name[0] == name.string:
        return *name.span(), "USA" if letters == "US" else letters
    return name.start(), name.end() - (name.end() == len(name.string)), letters


def _plain_letters(char: str) -> str:
    """The letters that a ligature or another form of a letter stands for; any other character is its own."""
    return unicodedata.normalize("NFKC", char) if char.isalpha() else char


def _start_of_mark(text: str, place: int) -> int:
    """Where a symbol begins: a sign of a trademark belongs to the word before it."""
    name = _NAME.search(text, max(0, place - _LONGEST_NAME), place) if text[place] in _TRADEMARKS else None
    return name.start() if name else place


def _is_symbol(char: str) -> bool:
    """Whether this is a symbol, a punctuation mark or a number such as ½, and has no other form that is usual."""
    category = unicodedata.category(char)
    return (category[0] == "P" or category in ("So", "Sm", "Sc", "No")) and not _RARE_CHARACTER.match(char)
