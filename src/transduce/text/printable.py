"""Safe output of untrusted text on a terminal."""

import unicodedata


def printable(text: str) -> str:
    """Replace the control characters of a text, which a terminal would execute, except newlines and tabs."""
    return "".join("\ufffd" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)
