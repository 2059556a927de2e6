"""Text that a model cannot read: other scripts, unknown symbols, and unusual forms of letters and marks."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from transduce.files.scripts import has_spaces, script
from transduce.tokenizers.symbols import SPACE_MARK
from transduce.translation.protect import Span, merge

_KNOWN_FROM = 20
"""Number of tokens with several letters of a script in the vocabularies of models that can read it."""
_STAND_INS = {
    "\u2010": "-", "\u2011": "-", "\u2012": "–", "\u2015": "—", "\u02bc": "'", "\u2032": "'", "\u2033": '"',
    "\xad": "", "\u200b": "", "\u2060": "", "\ufeff": "",
}  # fmt: skip
"""Hyphens, dashes and primes with others that look alike, and characters that are not seen."""
_INWARD_QUOTES = re.compile(r"(?<![^\s(\[])([»›])(?=\w)|(?<=[^\s(\[])([«‹])(?!\w)")
"""Quotation marks that point to the words, as in German books: »Nein«."""
_LOW_QUOTES = {"»": "„", "«": "“", "›": "‚", "‹": "‘"}
_DOTTED = re.compile(r"(?<![\w.])(?:U\.S\.S\.R|U\.S\.A|U\.A\.E|U\.K|U\.N|U\.S|E\.U)\.(?!\w)")
"""Initialisms with full stops, which models confuse with one another: "the U.K." was "den Vereinigten Staaten"."""
_UNUSUAL_CHARACTER = re.compile(f"[\u0300-\u036f\ufb00-\ufb06«»‹›{''.join(_STAND_INS)}]")
UNUSUAL_FORM = re.compile(rf"{_UNUSUAL_CHARACTER.pattern}|[EU]\.[AKNSU]\.")
"""Finds an accent as a character of its own, a ligature such as "ﬁ", as text that is copied from a PDF may have, one of
these marks, such as the non-breaking hyphen of Word and the quotation marks of German books, or an initialism: "U.K.".
"""
_SYMBOL_CATEGORIES = ("So", "Sm", "Sc", "No")
_OTHER_SYMBOLS = "§¶†‡"
_TRADEMARKS = "®™℠"
_NAME = re.compile(r"\w[\w'’-]*\Z")
_LONGEST_NAME = 50
_WORD = re.compile(r"\w[\w'’-]*")


def known_scripts(pieces: Iterable[str]) -> frozenset[str]:
    """Latin, and the scripts of which a vocabulary has learned words, not only a few letters."""
    counts: Counter[str] = Counter()
    for piece in pieces:
        letters = [letter for letter in piece if letter.isalpha()]
        if len(letters) > 1:
            counts.update({script(letter) for letter in letters})
    return frozenset({"LATIN", *(name for name, count in counts.items() if count >= _KNOWN_FROM)})


class ReadableText:
    """What a model can read, by its vocabulary: scripts, and characters."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.scripts = known_scripts(pieces)
        characters = "".join(pieces)
        self._characters = frozenset(
            char
            for char in {*characters, *characters.lower(), *characters.upper()}
            if script(char) in ("", *self.scripts)
        )
        self._has_initialisms = any(f"{SPACE_MARK}{name}" in pieces for name in ("UK", "US", "USA"))

    def unreadable(self, text: str) -> list[Span]:
        """The ranges of words that the model cannot read, and of symbols that its vocabulary does not have."""
        unknown = {*text} - self._characters
        if not any(map(_is_visible, unknown)):
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
        return [Span(*name.span()) for name in _DOTTED.finditer(text)] if self._has_initialisms else []

    def usual_form(self, text: str) -> str:
        """The text with usual letters and marks for forms that the vocabulary lacks, „“ for »«, and "UK" for "U.K."."""
        if self._has_initialisms:
            text = _DOTTED.sub(_without_full_stops, text)
        if self._characters.issuperset(_LOW_QUOTES.values()):
            text = _INWARD_QUOTES.sub(lambda quote: _LOW_QUOTES[quote[0]], text)
        unusual = {char for char in _UNUSUAL_CHARACTER.findall(text) if char not in self._characters}
        if any(map(unicodedata.combining, unusual)):
            text = unicodedata.normalize("NFC", text)
        usual = {char: _STAND_INS.get(char, _plain_letters(char)) for char in unusual}
        return text.translate({ord(char): form for char, form in usual.items() if self._characters.issuperset(form)})

    def _is_foreign_letter(self, char: str) -> bool:
        """Whether this is a letter, or a digit such as ², that occurs in words and that the vocabulary lacks.

        Ligatures and the like, which stand for known letters, do not count, nor do letters of scripts without spaces:
        they are in the same range as the words around them.
        """
        return has_spaces(char) and not self._characters.issuperset(_plain_letters(char))


def _without_full_stops(name: re.Match[str]) -> str:
    """The letters without full stops, except one that also ends a sentence; "US" as the whole text would be "us"."""
    letters = name[0].replace(".", "")
    if name[0] == name.string:
        return "USA" if letters == "US" else letters
    return letters + "." * (name.end() == len(name.string))


def foreign_words(text: str, known: Collection[str], letters: Collection[str] = ()) -> list[Span]:
    """The ranges of words in scripts that are not known, or with one of these letters.

    Those with nothing but punctuation between them are one range.
    """
    spans: list[Span] = []
    for word in _WORD.finditer(text):
        is_foreign = any(name and name not in known for name in map(script, word[0]))
        if not is_foreign and not any(char in letters for char in word[0]):
            continue
        if spans and not any(map(str.isalnum, text[spans[-1].end : word.start()])):
            spans[-1] = Span(spans[-1].start, word.end())
        else:
            spans.append(Span(*word.span()))
    return spans


def _plain_letters(char: str) -> str:
    """The letters that a ligature or another form of a letter stands for; any other character is its own."""
    return unicodedata.normalize("NFKC", char) if char.isalpha() else char


def _start_of_mark(text: str, place: int) -> int:
    """Where a symbol begins: a sign of a trademark belongs to the word before it."""
    name = _NAME.search(text, max(0, place - _LONGEST_NAME), place) if text[place] in _TRADEMARKS else None
    return name.start() if name else place


def _is_symbol(char: str) -> bool:
    return char in _OTHER_SYMBOLS or unicodedata.category(char) in _SYMBOL_CATEGORIES


def _is_visible(char: str) -> bool:
    return char.isalnum() or _is_symbol(char)
