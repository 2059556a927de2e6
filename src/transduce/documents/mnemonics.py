"""Mnemonics: the mark before the letter that selects a label with the keyboard, as in "&Save", "_Open" and "~Next"."""

import re
from typing import NamedTuple

from transduce.files.scripts import has_spaces
from transduce.translation.stages.protect import Protection

# Not an entity (&amp;), nor a part of an address or a variable.
_MARKED = re.compile(r"(?<![\w&~$@/.?=-])([^\W\d_]*)([&_~])([^\W\d_])(?!\w*;)")
_FIRST_LETTER = re.compile(r"(?<![\w'’])[^\W\d_]")
_ENDING = re.compile(r"[\s.…:：]*\Z")
_LATEST = 3
"""Number of letters of a word before the mark; more are taken for a word."""
_PROTECTION = Protection()


class Label(NamedTuple):
    """A text without the mark of its mnemonic."""

    text: str
    mark: str = ""
    """The mark; empty if the text has none."""
    letter: str = ""
    """The letter after it."""
    doubles: bool = False
    """Whether "&&" stood for the character "&", as in files with mnemonics."""

    def write(self, translation: str) -> str:
        """The translation with a mark: before a word with the same letter, or else before the first word.

        In a script without spaces the letter follows in parentheses, as usual there.
        """
        if self.doubles:
            translation = translation.replace("&", "&&")
        if not self.mark:
            return translation
        protected = {place for span in _PROTECTION.spans(translation) for place in range(span.start, span.end)}
        places = [start for match in _FIRST_LETTER.finditer(translation) if (start := match.start()) not in protected]
        if not places:
            return translation
        if not has_spaces(translation[places[0]]):
            return _ENDING.sub(lambda ending: f"({self.mark}{self.letter.upper()}){ending[0]}", translation, count=1)
        same = (place for place in places if translation[place].lower() == self.letter.lower())
        place = next(same, places[0])
        return translation[:place] + self.mark + translation[place:]


def read_label(text: str) -> Label:
    """Read a text that has at most one mnemonic; with several marks, none is taken for one."""
    doubles = "&&" in text
    marked = [match for match in _MARKED.finditer(text) if _is_mnemonic(match)]
    if len(marked) == 1 and text.replace("&&", "").count(marked[0][2]) == 1:
        place = marked[0].start(2)
        plain = (text[:place] + text[place + 1 :]).replace("&&", "&")
        return Label(plain, marked[0][2], marked[0][3], doubles)
    return Label(text.replace("&&", "&"), doubles=True) if doubles else Label(text)


def _is_mnemonic(match: re.Match[str]) -> bool:
    """Whether the mark begins a word or is inside a label ("E_xit"), unlike "R&D", "file_name" and "Drag&drop"."""
    before, _, letter = match.groups()
    return not before or (len(before) <= _LATEST and before[0].isupper() and letter.islower())
