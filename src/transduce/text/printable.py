"""Text of unknown origin on a terminal."""

import unicodedata


def printable(text: str) -> str:
    """The text with control characters, which a terminal would obey, replaced; lines and tabs stay."""
    return "".join("\ufffd" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)
