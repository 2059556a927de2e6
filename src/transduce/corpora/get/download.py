"""Download one file over HTTP: it resumes after interruptions, and is renamed when its size and sha256 are right.

As the sha256 is known beforehand, no version that a server reports needs to be trusted: parts of two versions do not
have the right sha256, and are downloaded again from the start.
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
"""Seconds to wait after each consecutive failure; the download fails after the last. Progress resets the count."""
_TIMEOUT = 60
_BLOCK = 1 << 18
_TRANSIENT = (408, 429, 500, 502, 503, 504)
"""HTTP status codes after which a request is tried again."""


class _TransferError(Exception):
    """A transfer ended early, and may succeed if it is tried again."""


def download(
    url: str, path: Path, size: int, sha256: str, log: Callable[[str], None], progress: Callable[[int], None]
) -> None:
    """Download a file to `path`; `progress` is called with the number of bytes that are downloaded.

    They are kept in a .part file, from which an interrupted download resumes, unless their sha256 is wrong.
    """
    if path.exists():
        if digest(path) == sha256:
            progress(size)
            return
        log(f"{path} is damaged; downloading it again")
        path.unlink()
    part = partial_file(path)
    for attempt in (1, 2):
        with part.open("ab") as file:
            if file.tell() > size:
                _empty(file)
            _fill(file, url, size, log, progress)
        flush(part)
        if (received := digest(part)) == sha256:
            part.replace(path)
            return
        part.unlink()
        if attempt == 1:
            log(f"{path.name} arrived damaged; downloading it again from the start")
    raise DataError(
        f"{url}: arrived twice with the sha256 {received[:12]}..., not {sha256[:12]}...: the server has a different "
        "file, or the network changes it; try --mirror with another server, or another network"
    )


def partial_file(path: Path) -> Path:
    """Where a file is kept until it is complete."""
    return path.with_name(f"{path.name}.part")


def _fill(file: BinaryIO, url: str, size: int, log: Callable[[str], None], progress: Callable[[int], None]) -> None:
    """Download until the file has its size; after a failed transfer, pause and try again."""
    failures = 0
    progress(file.tell())
    while (before := file.tell()) < size:
        try:
            _transfer(file, url, size, progress)
        except _TransferError as error:
            failures = 1 if file.tell() > before else failures + 1
            if failures > len(PAUSES):
                raise DataError(
                    f"{url}: {error}; gave up after {failures} attempts. Run the same command again to resume: "
                    f"{file.tell():,} of {size:,} bytes are downloaded"
                ) from None
            pause = PAUSES[failures - 1]
            log(f"{url}: {error} at {file.tell():,} of {size:,} bytes; trying again in {pause:g} s")
            time.sleep(pause)


def _transfer(file: BinaryIO, url: str, size: int, progress: Callable[[int], None]) -> None:
    """Make one request and append what arrives, up to the size."""
    with _request(url, file.tell()) as response:
        _check_response(response, url, file.tell(), size)
        if response.status == 200:  # the entire file: the first request, or a server without support for ranges
            _empty(file)
        while file.tell() < size:
            try:
                block = response.read1(min(_BLOCK, size - file.tell()))
            except (OSError, HTTPException) as error:
                raise _TransferError(_reason(error)) from None
            if not block:
                raise _TransferError("the connection closed")
            file.write(block)
            progress(file.tell())


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _request(url: str, start: int) -> HTTPResponse:
    headers = {"User-Agent": "transduce", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_TIMEOUT)
    except HTTPError as error:
        answer = f"the server answers {error.code} {error.reason}".rstrip()
        if error.code in _TRANSIENT:
            raise _TransferError(answer) from None
        if error.code == 416:
            answer = "the server has a shorter file"
        raise DataError(f"{url}: {answer}; try --mirror with another server") from None
    except (OSError, HTTPException) as error:
        raise _TransferError(_reason(error)) from None
    return response


def _check_response(response: HTTPResponse, url: str, start: int, size: int) -> None:
    """Raise an error if the server's file has another size, before its bytes are appended to ours."""
    if response.status == 206:
        header = response.headers.get("Content-Range", "")
        fits = header in (f"bytes {start}-{size - 1}/{size}", f"bytes {start}-{size - 1}/*")
    else:
        header = response.headers.get("Content-Length", str(size))
        fits = response.status == 200 and header == str(size)
    if not fits:
        raise DataError(
            f"{url}: expected a file of {size:,} bytes, but the server has a different one "
            f"({header or response.status}); try --mirror with another server"
        )


def _reason(error: Exception) -> str:
    """The message of an error, without the brackets that urllib puts around it."""
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner or type(inner).__name__)
