"""Safe output of untrusted text on a terminal."""

import unicodedata

_MAX_CHARACTERS = 2000
_UNSAFE = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that a terminal executes, or that cannot be written or break a line."""
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the order in which a line is displayed."""


def one_line(text: str) -> str:
    """A message as one line: characters that a terminal would execute are escaped, and a long message is shortened."""
    if len(text) > _MAX_CHARACTERS:
        left_out = len(text) - _MAX_CHARACTERS
        text = f"{text[: _MAX_CHARACTERS // 2]} [... {left_out:,} characters ...] {text[-_MAX_CHARACTERS // 2 :]}"
    return "".join(_escaped(c) if _is_unsafe(c) else c for c in text)


def _is_unsafe(character: str) -> bool:
    return (unicodedata.category(character) in _UNSAFE and character != "\t") or character in _BIDIRECTIONAL


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
