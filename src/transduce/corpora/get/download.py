"""One file over HTTP: gone on with where it stopped, and named only when its size and sha256 are right.

As the sha256 is known beforehand, nothing a server says about versions of a file needs to be believed or remembered:
pieces of two versions do not add up to it, and are fetched again from the start.
"""

import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from transduce.disk import digest, flush
from transduce.errors import DataError

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds to wait after each failure in a row. A failure after the last ends it; bytes that arrive begin a new row."""
_TIMEOUT = 60
_BLOCK = 1 << 18
_PASSING = (408, 429, 500, 502, 503, 504)
"""What servers answer that are busy and may not be so in a moment."""


class _BrokenError(Exception):
    """A transfer ended early, for a reason that may pass."""


def download(
    url: str, path: Path, size: int, sha256: str, say: Callable[[str], None], moved: Callable[[int], None]
) -> None:
    """Have the file at `path`; `moved` is told how many bytes of it are there.

    What has arrived is kept beside it in a .part file whatever happens, unless it is proven wrong.
    """
    if path.exists():
        if digest(path) == sha256:
            moved(size)
            return
        say(f"{path} is damaged; fetching it again")
        path.unlink()
    part = part_of(path)
    for attempt in (1, 2):
        with part.open("ab") as file:
            if file.tell() > size:
                _empty(file)
            _fill(file, url, size, say, moved)
        flush(part)
        if (found := digest(part)) == sha256:
            part.replace(path)
            return
        part.unlink()
        if attempt == 1:
            say(f"{path.name} arrived damaged; fetching it again from the start")
    raise DataError(
        f"{url}: arrived twice with the sha256 {found[:12]}..., not {sha256[:12]}...: the server has another file, or "
        "something on the way changes it; try --mirror with another server, or another network"
    )


def part_of(path: Path) -> Path:
    """Where a file is kept until all of it is there."""
    return path.with_name(f"{path.name}.part")


def _fill(file: BinaryIO, url: str, size: int, say: Callable[[str], None], moved: Callable[[int], None]) -> None:
    """Fetch until the file has its size, with pauses between transfers that break."""
    failures = 0
    moved(file.tell())
    while (before := file.tell()) < size:
        try:
            _transfer(file, url, size, moved)
        except _BrokenError as error:
            failures = 1 if file.tell() > before else failures + 1
            if failures > len(PAUSES):
                raise DataError(
                    f"{url}: {error}; gave up after {failures} attempts. Run the same command again to go on: "
                    f"{file.tell():,} of {size:,} bytes are there"
                ) from None
            pause = PAUSES[failures - 1]
            say(f"{url}: {error} at {file.tell():,} of {size:,} bytes; again in {pause:g} s")
            time.sleep(pause)


def _transfer(file: BinaryIO, url: str, size: int, moved: Callable[[int], None]) -> None:
    """One request: append what comes, up to the size."""
    with _ask(url, file.tell()) as answer:
        _check_answer(answer, url, file.tell(), size)
        if answer.status == 200:  # the whole file: the first request, or a server that does not know ranges
            _empty(file)
        while file.tell() < size:
            try:
                block = answer.read1(min(_BLOCK, size - file.tell()))
            except (OSError, HTTPException) as error:
                raise _BrokenError(_reason(error)) from None
            if not block:
                raise _BrokenError("the connection closed")
            file.write(block)
            moved(file.tell())


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _ask(url: str, start: int) -> HTTPResponse:
    headers = {"User-Agent": "transduce", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        answer: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_TIMEOUT)
    except HTTPError as error:
        said = f"the server answers {error.code} {error.reason}".rstrip()
        if error.code in _PASSING:
            raise _BrokenError(said) from None
        if error.code == 416:
            raise DataError(f"{url}: the server has a shorter file; try --mirror with another server") from None
        raise DataError(f"{url}: {said}; try --mirror with another server") from None
    except (OSError, HTTPException) as error:
        raise _BrokenError(_reason(error)) from None
    return answer


def _check_answer(answer: HTTPResponse, url: str, start: int, size: int) -> None:
    """Refuse a file of another size before its bytes are mixed with ours."""
    if answer.status == 206:
        told = answer.headers.get("Content-Range", "")
        fits = told in (f"bytes {start}-{size - 1}/{size}", f"bytes {start}-{size - 1}/*")
    else:
        told = answer.headers.get("Content-Length", str(size))
        fits = answer.status == 200 and told == str(size)
    if not fits:
        raise DataError(
            f"{url}: the server has another file ({told or answer.status}) than the one of {size:,} bytes that was "
            "asked for; try --mirror with another server"
        )


def _reason(error: Exception) -> str:
    """In words, without the brackets that urllib puts around it."""
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner or type(inner).__name__)
