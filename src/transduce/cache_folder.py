"""The folder for files that can be recomputed."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The cache of prepared corpora and compiled code: $TRANSDUCE_CACHE, or a folder in the user's cache."""
    if named := os.environ.get("TRANSDUCE_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transduce"
