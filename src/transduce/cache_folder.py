"""The folder for files that can be recomputed."""

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import ConfigError

REMEMBERED_DIGESTS, FASTEST_PRODUCTS = "digests.json", "products.json"
_LIBRARY = re.compile(r"native-[0-9a-f]{16}\.(so|sha256)")
_KINDS: dict[str, Callable[[Path], bool]] = {
    "prepared corpora": lambda path: bool(re.fullmatch(r"[0-9a-f]{32}", path.name)) and (path / "index.json").is_file(),
    "unfinished corpora": lambda path: bool(re.fullmatch(r"[0-9a-f]{32}\.\w+\.tmp", path.name)) and path.is_dir(),
    "digests of large files": lambda path: path.name == REMEMBERED_DIGESTS and path.is_file(),
    "algorithms of matrix products": lambda path: path.name == FASTEST_PRODUCTS and path.is_file(),
    "compiled libraries": lambda path: bool(_LIBRARY.fullmatch(path.name)) and path.is_file(),
}
"""What this package writes to the folder, and how it is recognized."""
_IN_USE = 3600
"""Seconds since its last change in which another process may still be writing an unfinished corpus."""


@dataclass(frozen=True)
class CacheEntry:
    path: Path
    kind: str | None
    """One of the kinds that this package writes; None if something else has put it there."""
    size: int
    """Number of bytes."""


def cache_folder() -> Path:
    """The cache of prepared corpora and compiled code: $TRANSDUCE_CACHE, or a folder in the user's cache."""
    if named := os.environ.get("TRANSDUCE_CACHE"):
        return Path(named)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transduce"
    except RuntimeError:
        raise ConfigError("this user has no home folder; name a folder for the cache with TRANSDUCE_CACHE") from None


def cache_entries() -> list[CacheEntry]:
    folder = cache_folder()
    return [CacheEntry(path, _kind(path), _size(path)) for path in sorted(folder.iterdir())] if folder.is_dir() else []


def clear_cache() -> list[CacheEntry]:
    """Delete what this package has written, except for what another process may be writing; returns what was deleted.

    A run that is being trained is not disturbed: its files stay mapped until it ends.
    """
    deleted = []
    for entry in cache_entries():
        age = time.time() - entry.path.lstat().st_mtime
        if entry.kind is None or (entry.kind == "unfinished corpora" and age < _IN_USE):
            continue
        if entry.path.is_dir():
            shutil.rmtree(entry.path)
        else:
            entry.path.unlink()
        deleted.append(entry)
    return deleted


def _kind(path: Path) -> str | None:
    return None if path.is_symlink() else next((kind for kind, is_it in _KINDS.items() if is_it(path)), None)


def _size(path: Path) -> int:
    files = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in files if file.is_symlink() or not file.is_dir())
