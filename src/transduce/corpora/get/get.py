"""Get a public corpus: download its archives and make a folder of text from them."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from transduce.corpora.get.catalogue import Corpus, is_http_url
from transduce.corpora.get.download import download, partial_file
from transduce.corpora.get.make import make_text, verify_text
from transduce.errors import ConfigError, DataError

Log = Callable[[str], None]
Progress = Callable[[str, int, int], None]
"""Called with the name of an archive, its size, and the number of bytes that have been downloaded."""


def get_corpus(corpus: Corpus, out: Path, mirror: str | None, log: Log, progress: Progress) -> None:
    """Make the folder `out`; the downloaded archives are kept in OUT-archives beside it."""
    if mirror and not is_http_url(mirror):
        raise ConfigError(f"--mirror {mirror}: write it as http://HOST or https://HOST")
    if out.exists():
        verify_text(corpus, out)
        log(f"{out} already exists and is intact")
        return
    archives = out.with_name(f"{out.name}-archives")
    try:
        archives.mkdir(parents=True, exist_ok=True)
        with _lock(archives):
            _check_space(corpus, archives, log)
            for archive in corpus.archives:
                url = mirror.rstrip("/") + urlsplit(archive.url).path if mirror else archive.url
                path, update = archives / archive.name, partial(progress, archive.name, archive.size)
                download(url, path, archive.size, archive.sha256, log, update)
                log(f"{path}: {archive.size:,} bytes, sha256 verified")
            make_text(corpus, archives, out, log)
    except OSError as error:
        raise DataError(f"{out.parent}: {error}; downloaded files are kept: run the same command again") from None
    log(f"{archives} is no longer needed and may be deleted")


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Prevent a second process from downloading into the same folder."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{folder}: another process is downloading into it; wait or choose another --out") from None
        yield


def _check_space(corpus: Corpus, archives: Path, log: Log) -> None:
    """Log the sizes, and raise an error if the disk does not have enough space."""
    total = sum(archive.size for archive in corpus.archives)
    paths = [archives / archive.name for archive in corpus.archives]
    here = sum(file.stat().st_size for path in paths for file in (path, partial_file(path)) if file.exists())
    needed, free = max(corpus.disk - here, 0), shutil.disk_usage(archives).free
    log(f"{_gigabytes(total)} to download, {_gigabytes(here)} are already here; terms of use: {corpus.about}")
    log(f"about {_gigabytes(needed)} of disk space are needed, {_gigabytes(free)} are free")
    if free < needed:
        raise DataError(f"{archives.parent}: not enough disk space; free some, or choose another disk with --out")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
