"""The table of samples, which the files of this package fill."""

from collections.abc import Callable
from functools import cache

SAMPLES: dict[str, Callable[[], bytes]] = {}
"""Makes a document; its format is the part of its name after the last dot."""


def sample(function: Callable[[], bytes | str]) -> Callable[[], bytes | str]:
    """Add a function named like name_format to the samples."""
    name, _, kind = function.__name__.rpartition("_")

    @cache
    def make() -> bytes:
        content = function()
        return content.encode() if isinstance(content, str) else content

    SAMPLES[f"{name}.{kind}"] = make
    return function
