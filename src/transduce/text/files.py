"""Lines of a text file, plain or compressed, read so that no input can crash us or shift a line."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, Self, cast

from transduce.errors import DataError

MAX_LINE_BYTES = 100_000
_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"
COMPRESSIONS = (".gz", ".xz", ".zst")


def open_binary(path: Path) -> BufferedReader:
    """The file's bytes, decompressed by its ending; "-" is standard input."""
    try:
        if str(path) == "-":
            return open(0, "rb", closefd=False)
        if path.suffix == ".gz":
            return cast(BufferedReader, gzip.open(path, "rb"))
        if path.suffix == ".xz":
            return cast(BufferedReader, lzma.open(path, "rb"))
        if path.suffix == ".zst":
            zstandard = zstandard_for(path)
            return cast(BufferedReader, _ZstReader(path.open("rb"), zstandard))
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
            for block in _blocks(file):
                *ended, tail = block.split(b"\n")
                for piece in ended:
                    line, rest = rest + piece, b""
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


def _blocks(file: BufferedReader) -> Iterator[bytes]:
    """The file in blocks as they come (a person may be typing), less a byte order mark."""
    first = b""
    while len(first) < len(_BOM) and (block := file.read1(_BLOCK)):
        first += block
    yield first.removeprefix(_BOM)
    while block := file.read1(_BLOCK):
        yield block


def read_lines(path: Path) -> Iterator[str]:
    """Every line as text, for files in which each line counts (inputs, references): a bad one is an error."""
    for number, raw in enumerate(raw_lines(path), start=1):
        if raw is None:
            raise DataError(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; split it first")
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{path}, line {number}: not UTF-8; convert the file with iconv") from None


def zstandard_for(path: Path) -> Any:
    """The package that knows .zst, which not everybody has."""
    try:
        import zstandard
    except ImportError:
        raise DataError(f"{path}: a .zst file needs the zstandard package: pip install zstandard") from None
    return zstandard


class _ZstReader:
    """Reads a .zst file to its end and notices when that comes too early, which zstandard's own reader does not."""

    def __init__(self, file: BufferedReader, zstandard: Any) -> None:
        self._file, self._zstandard = file, zstandard
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._in_frame = False

    def read1(self, _: int) -> bytes:
        """The next bytes, as many as come at once; none at the end."""
        while compressed := self._file.read(64):  # which unfold to 2 MB at the very most
            text = b""
            try:
                while compressed:
                    if self._frame.eof:
                        self._frame = self._zstandard.ZstdDecompressor().decompressobj()
                    text += self._frame.decompress(compressed)
                    compressed = self._frame.unused_data
            except self._zstandard.ZstdError as error:
                raise EOFError(str(error)) from None
            self._in_frame = not self._frame.eof
            if text:
                return text
        if self._in_frame:
            raise EOFError("it ends inside a frame")
        return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
