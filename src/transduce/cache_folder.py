"""Where things are kept that can be made again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Of prepared corpora and compiled code: $TRANSDUCE_CACHE, or the user's cache folder."""
    if named := os.environ.get("TRANSDUCE_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transduce"
