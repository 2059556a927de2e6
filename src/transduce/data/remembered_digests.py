"""The sha256 of large files, computed once, so that training that starts again need not read its text and shards."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.cache_folder import REMEMBERED_DIGESTS, cache_folder
from transduce.disk import digest, write_atomically

SMALLEST = 1 << 16
"""Bytes of the smallest file that is remembered; smaller ones are read again every time, which is fast."""
_SETTLED = 2.0
"""Seconds since its last change after which a file is remembered: a clock may not tell two earlier changes apart."""
_MOST = 20_000
"""Number of files that are remembered; the first that were are forgotten."""


class RememberedDigests:
    """The sha256 of files, by what the file system tells of them.

    A file is read again if its size or the times of its last change differ. Programs can set the time of the last
    change of the content, but not that of the last change of the file's entry, so that a file that was replaced or
    edited is noticed.
    """

    def __init__(self, known: dict[str, list[object]]) -> None:
        self._known = known
        self.changed = False

    def __call__(self, path: Path) -> str:
        state = path.stat()
        key, facts = f"{state.st_dev}:{state.st_ino}", [state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        if state.st_size < SMALLEST:
            return digest(path)
        *remembered, sha256 = self._known.get(key, [None])
        if remembered == facts and isinstance(sha256, str):
            return sha256
        settled = time.time() - max(state.st_mtime, state.st_ctime) > _SETTLED
        sha256, after = digest(path), path.stat()
        if settled and facts == [after.st_size, after.st_mtime_ns, after.st_ctime_ns]:
            self._known.pop(key, None)
            self._known[key] = [*facts, sha256]
            self.changed = True
        return sha256

    def text(self) -> str:
        """All that is remembered, as JSON."""
        return json.dumps(dict(list(self._known.items())[-_MOST:]), indent=0)


@contextmanager
def remembered_digests() -> Iterator[RememberedDigests]:
    """The digests that earlier processes computed; those that are new are kept in the cache."""
    path = cache_folder() / REMEMBERED_DIGESTS
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        usable = isinstance(known, dict) and all(isinstance(facts, list) and facts for facts in known.values())
    except (OSError, ValueError, RecursionError):
        usable = False
    digests = RememberedDigests(known if usable else {})
    yield digests
    if digests.changed:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, digests.text().encode())
        except OSError:
            pass  # the next process computes them again
