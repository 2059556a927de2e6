"""A public corpus, from its addresses to a folder of text."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from transduce.corpora.get.catalogue import Corpus, is_web_address
from transduce.corpora.get.download import download, part_of
from transduce.corpora.get.make import check_made, make
from transduce.errors import ConfigError, DataError

Say = Callable[[str], None]
Moved = Callable[[str, int, int], None]
"""Told the name of an archive, the bytes it has, and how many of them are here."""


def get_corpus(corpus: Corpus, out: Path, mirror: str | None, say: Say, moved: Moved) -> None:
    """Make the folder `out`; what is fetched for it goes to OUT-archives beside it, and stays there."""
    if mirror and not is_web_address(mirror):
        raise ConfigError(f"--mirror {mirror}: write it as http://HOST or https://HOST")
    if out.exists():
        check_made(corpus, out)
        say(f"{out} is there already, and all of it is intact")
        return
    archives = out.with_name(f"{out.name}-archives")
    try:
        archives.mkdir(parents=True, exist_ok=True)
        with _lock(archives):
            _announce(corpus, archives, say)
            for archive in corpus.archives:
                url = mirror.rstrip("/") + urlsplit(archive.url).path if mirror else archive.url
                path, watch = archives / archive.name, partial(moved, archive.name, archive.size)
                download(url, path, archive.size, archive.sha256, say, watch)
                say(f"{path}: {archive.size:,} bytes, sha256 as it should be")
            make(corpus, archives, out, say)
    except OSError as error:
        raise DataError(f"{out.parent}: {error}; what was fetched is kept: run the same command again") from None
    say(f"{archives} is needed no more and may be deleted")


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keep a second process from fetching the same files into the same place."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{folder}: another process is fetching into it; wait, or choose another --out") from None
        yield


def _announce(corpus: Corpus, archives: Path, say: Say) -> None:
    """Say what is about to happen, and stop where the disk has no room for it."""
    total = sum(archive.size for archive in corpus.archives)
    paths = [archives / archive.name for archive in corpus.archives]
    here = sum(file.stat().st_size for path in paths for file in (path, part_of(path)) if file.exists())
    needed, free = max(corpus.disk - here, 0), shutil.disk_usage(archives).free
    say(f"{_gigabytes(total)} to fetch, {_gigabytes(here)} of it are here; terms of use: {corpus.about}")
    say(f"about {_gigabytes(needed)} of disk are needed, {_gigabytes(free)} are free")
    if free < needed:
        raise DataError(f"{archives.parent}: not enough room; make some, or choose another disk with --out")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
