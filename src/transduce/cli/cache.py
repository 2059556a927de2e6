"""`transduce cache`."""

from typing import Annotated

import typer


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all that transduce has written to the cache.")] = False,
) -> None:
    """Print the size of the cache, or empty it.

    The cache holds prepared training text and compiled code; both are made again when they are needed. The environment
    variable TRANSDUCE_CACHE names another folder. Files that transduce has not written are never deleted.
    """
    from transduce.cache_folder import cache_entries, cache_folder, clear_cache

    entries = clear_cache() if clear else cache_entries()
    print(f"{cache_folder()}: {'freed ' if clear else ''}{_readable(sum(entry.size for entry in entries))}")
    for kind in sorted({entry.kind or "" for entry in entries}, reverse=True):
        sizes = [entry.size for entry in entries if (entry.kind or "") == kind]
        print(f"  {len(sizes):>6,} {kind or 'other files':<20}{_readable(sum(sizes)):>10}")


def _readable(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size} bytes"
