"""Lines of a text file, plain or compressed, read so that no input can crash us or shift a line."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from transduce.errors import DataError

MAX_LINE_BYTES = 100_000
_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"
COMPRESSIONS = (".gz", ".xz", ".zst")


def open_binary(path: Path) -> BinaryIO:
    """The file's bytes, decompressed by its ending; "-" is standard input."""
    try:
        if str(path) == "-":
            return open(0, "rb", closefd=False)
        if path.suffix == ".gz":
            return cast(BinaryIO, gzip.open(path, "rb"))
        if path.suffix == ".xz":
            return cast(BinaryIO, lzma.open(path, "rb"))
        if path.suffix == ".zst":
            return _open_zst(path)
        return path.open("rb")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def raw_lines(path: Path) -> Iterator[bytes | None]:
    """Every line without its line ending; None for one above MAX_LINE_BYTES, which is never held in memory.

    Only a newline ends a line: other Unicode separators are text, or pairs of files would shift.
    """
    number = 0
    rest, overlong = b"", False
    try:
        with open_binary(path) as file:
            while block := file.read(_BLOCK):
                *ended, tail = block.split(b"\n")
                for piece in ended:
                    line, rest = rest + piece, b""
                    if number == 0:
                        line = line.removeprefix(_BOM)
                    number += 1
                    yield None if overlong or len(line) > MAX_LINE_BYTES else line.removesuffix(b"\r")
                    overlong = False
                rest += tail
                if len(rest) > MAX_LINE_BYTES:
                    rest, overlong = b"", True
            if rest or overlong:
                yield None if overlong else rest.removesuffix(b"\r")
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged or cut short after line {number}: {error}") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, not a file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read after line {number}: {error}") from None


def read_lines(path: Path) -> Iterator[str]:
    """Every line as text, for files in which each line counts (inputs, references): a bad one is an error."""
    for number, raw in enumerate(raw_lines(path), start=1):
        if raw is None:
            raise DataError(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; split it first")
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{path}, line {number}: not UTF-8; convert the file with iconv") from None


def _open_zst(path: Path) -> BinaryIO:
    try:
        import zstandard
    except ImportError:
        raise DataError(f"{path}: reading .zst needs the zstandard package: pip install zstandard") from None
    return cast(BinaryIO, zstandard.open(path, "rb"))
