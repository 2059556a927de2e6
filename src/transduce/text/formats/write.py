"""Pairs into a .tsv or .jsonl file, plain or compressed, which is there whole or not at all."""

import gzip
import json
import lzma
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from transduce.errors import DataError
from transduce.text.files import zstandard_for
from transduce.text.pairs import JSONL, kind_of

_NOT_IN_A_COLUMN = re.compile(r"[\t\r\n]+")


@contextmanager
def pair_writer(path: Path) -> Iterator[Callable[[str, str], None]]:
    """A function that writes a pair; the file appears when the block is left without an error."""
    row = _row_of_kind(path)
    work = path.with_name(f".{path.name}.tmp")
    try:
        with _open(work, path.suffix) as file:
            yield lambda source, target: cast(None, file.write(row(source, target).encode()))
        work.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        work.unlink(missing_ok=True)


def _row_of_kind(path: Path) -> Callable[[str, str], str]:
    kind = kind_of(path)
    if kind == ".tsv":
        return _tsv_row
    if kind in JSONL:
        return _jsonl_row
    raise DataError(
        f"{path}: cannot tell how to write it; end its name in .tsv or .jsonl, and .gz, .xz or .zst if wanted"
    )


def _tsv_row(source: str, target: str) -> str:
    """What would end a column or a line becomes a space."""
    return "\t".join(_NOT_IN_A_COLUMN.sub(" ", side) for side in (source, target)) + "\n"


def _jsonl_row(source: str, target: str) -> str:
    return json.dumps({"src": source, "tgt": target}, ensure_ascii=False) + "\n"


def _open(path: Path, compression: str) -> BinaryIO:
    if compression == ".gz":
        # Level 3 takes less than half the time of 6, for a tenth more bytes; without a time, files are alike.
        return cast(BinaryIO, gzip.GzipFile(path, "wb", 3, mtime=0))
    if compression == ".xz":
        # The default is ten times slower, for a fifth of the size.
        return cast(BinaryIO, lzma.open(path, "wb", preset=1))
    if compression == ".zst":
        return cast(BinaryIO, zstandard_for(path).open(path, "wb"))
    return path.open("wb")
