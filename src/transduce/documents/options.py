"""How a document is read."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may need to know besides the file."""

    source: str | None = None
    """Source language, if it is known."""
    target: str | None = None
    """Target language, if it is known."""
    retranslate: bool = False
    """Whether texts that have a translation in the file are translated again."""
