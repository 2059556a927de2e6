"""Unpack single files of a compressed tar archive as plain text. No path in the archive is ever written to."""

import gzip
import html
import lzma
import re
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import IO

from transduce.errors import DataError

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


def unpack(archive: Path, wanted: dict[str, Path]) -> None:
    """Write each of these members to its file; all others are ignored."""
    missing = dict(wanted)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in missing and member.isfile() and (content := tar.extractfile(member)):
                    _write(content, missing.pop(name))
                if not missing:
                    return
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        reason = str(error).partition(":\n")[0]  # tarfile then lists every compression that it has tried
        raise DataError(f"{archive}: cannot be unpacked: {reason}") from None
    raise DataError(f"{archive}: does not hold {', '.join(missing)}")


def _write(content: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if path.suffix == ".sgm":
            text = content.read().decode("utf-8", "surrogateescape")
            file.write("".join(line + "\n" for line in segments(text)).encode("utf-8", "surrogateescape"))
        else:
            shutil.copyfileobj(content, file)


def segments(sgml: str) -> list[str]:
    """The sentences of a test set in WMT's SGML, in order, each on one line; empty ones stay, so that lines align."""
    return [" ".join(html.unescape(segment).split()) for segment in _SEGMENT.findall(sgml)]
