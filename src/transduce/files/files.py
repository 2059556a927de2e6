"""Text files, plain or compressed, read line by line; no input crashes the reader or shifts a line number."""

import codecs
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from transduce.disk import atomic_file
from transduce.errors import DataError

MAX_LINE_BYTES = 100_000
_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"
_CONTROL = re.compile(rb"[^\x80-\xff -~\s\x1b]")
"""A control character that no text has: any but white space and those of ISO-2022 and terminals."""
COMPRESSIONS = (".gz", ".xz", ".zst")
_OTHER_COMPRESSIONS = (".7z", ".bz2", ".lz4", ".lzma", ".rar", ".zip")


def open_binary(path: Path) -> BufferedReader:
    """Open a file for reading, decompressed by its suffix; "-" is standard input."""
    try:
        if str(path) == "-":
            return open(0, "rb", closefd=False)
        if path.suffix == ".gz":
            return cast(BufferedReader, gzip.open(path, "rb"))
        if path.suffix == ".xz":
            return cast(BufferedReader, lzma.open(path, "rb"))
        if path.suffix == ".zst":
            return cast(BufferedReader, _ZstReader(path.open("rb"), _zstandard(path)))
        if path.suffix in _OTHER_COMPRESSIONS:
            raise DataError(f"{path}: compressed text must be .gz, .xz or .zst; decompress the file first")
        return path.open("rb")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def _create_binary(path: Path, compression: str) -> BinaryIO:
    """Create a file for writing, compressed as this suffix tells."""
    if compression == ".gz":
        # Level 3 takes less than half the time of 6 for 10% more bytes. mtime=0 makes equal text equal bytes.
        return cast(BinaryIO, gzip.GzipFile(path, "wb", 3, mtime=0))
    if compression == ".xz":
        # The default preset is ten times slower and saves a fifth of the size.
        return cast(BinaryIO, lzma.open(path, "wb", preset=1))
    if compression == ".zst":
        return cast(BinaryIO, _zstandard(path).open(path, "wb"))
    return path.open("wb")


@contextmanager
def text_writer(path: Path) -> Iterator[Callable[[str], None]]:
    """Give a function that writes text, compressed as the name of the file tells.

    The file appears, complete, when the block ends without an error.
    """
    try:
        with atomic_file(path) as work, _create_binary(work, path.suffix) as file:

            def write(text: str) -> None:
                file.write(text.encode())

            yield write
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None


def raw_lines(path: Path, max_bytes: int | None = None) -> Iterator[bytes | None]:
    """Yield every line without its line ending; None for one above the maximum, which is never held in memory.

    The maximum is MAX_LINE_BYTES unless it is given. Only a newline ends a line: other Unicode separators are text, or
    parallel files would become misaligned.
    """
    max_bytes = MAX_LINE_BYTES if max_bytes is None else max_bytes
    number = 0
    rest, overlong = b"", False
    with _reading_errors(path, lambda: number), open_binary(path) as file:
        for block in _blocks(file):
            *ended, tail = block.split(b"\n")
            for piece in ended:
                line, rest = rest + piece, b""
                number += 1
                yield None if overlong or len(line) > max_bytes else line.removesuffix(b"\r")
                overlong = False
            rest += tail
            if len(rest) > max_bytes:
                rest, overlong = b"", True
        if rest or overlong:
            yield None if overlong else rest.removesuffix(b"\r")


def read_whole(path: Path, max_bytes: int) -> bytes:
    """The content of a file, decompressed by its suffix; a larger one is an error."""
    content = bytearray()
    for block in binary_blocks(path):
        content += block
        if len(content) > max_bytes:
            raise DataError(f"{path}: larger than {max_bytes >> 20} MB; split it first")
    return bytes(content)


def binary_blocks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in blocks, decompressed by its suffix."""
    lines = 0
    with _reading_errors(path, lambda: lines), open_binary(path) as file:
        while block := file.read1(_BLOCK):
            lines += block.count(b"\n")
            yield block


def text_blocks(path: Path) -> Iterator[str]:
    """Yield the text of a file in blocks that are never cut inside a character; line endings are kept."""
    lines = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    with _reading_errors(path, lambda: lines), open_binary(path) as file:
        for raw in chain(_blocks(file), [b""]):
            try:
                text = decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                line = lines + error.object[: error.start].count(b"\n") + 1
                raise _not_utf8(f"{path}, line {line}", error.object) from None
            if "\0" in text:
                line = lines + text[: text.index("\0")].count("\n") + 1
                raise DataError(f"{path}, line {line}: a NUL character; remove it, e.g. with: tr -d '\\000'")
            lines += text.count("\n")
            yield text


@contextmanager
def _reading_errors(path: Path, lines: Callable[[], int]) -> Iterator[None]:
    """Turn errors of reading a file into a `DataError` with the number of lines that were read before."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged or cut short after line {lines()}: {error}") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, not a file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read after line {lines()}: {error}") from None


def _blocks(file: BufferedReader) -> Iterator[bytes]:
    """Yield the file in blocks as they arrive (a person may be typing), without a byte order mark."""
    first = b""
    while len(first) < len(_BOM) and (block := file.read1(_BLOCK)):
        first += block
    yield first.removeprefix(_BOM)
    while block := file.read1(_BLOCK):
        yield block


def read_lines(path: Path) -> Iterator[str]:
    """Yield every line as text. A bad line is an error, as in inputs and references no line may be left out."""
    for number, raw in enumerate(raw_lines(path), start=1):
        if raw is None:
            raise DataError(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; split it first")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise _not_utf8(f"{path}, line {number}", _head(path) + raw) from None
        if "\0" in text:
            raise DataError(
                f"{path}, line {number}: a NUL character; if the file is UTF-16, convert it with iconv, otherwise "
                "remove it, e.g. with: tr -d '\\000'"
            )
        yield text


def _head(path: Path) -> bytes:
    """The first bytes of a file; of a pipe, which cannot be read twice, none."""
    file = Path("/dev/stdin") if str(path) == "-" else path
    if not file.is_file():
        return b""
    with open_binary(file) as opened:
        return opened.read1(_BLOCK)


def _not_utf8(where: str, data: bytes) -> DataError:
    """The error for a file with these bytes, which are not UTF-8: what it is instead."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        problem, encoding = "UTF-16, not UTF-8", "UTF-16"
    elif _CONTROL.search(data):
        return DataError(f"{where}: not UTF-8; this is not a text file")
    else:
        problem, encoding = "not UTF-8", "ISO-8859-1"
    return DataError(f"{where}: {problem}; convert the file, e.g. with: iconv -f {encoding} -t UTF-8 FILE")


def decode_text(data: bytes, name: str, declared: re.Pattern[bytes] | None = None) -> tuple[str, str]:
    """The text of a file, and its encoding: that of the byte order mark, or declared by this pattern, or UTF-8."""
    encoding = "utf-8"
    if data.startswith(b"\xef\xbb\xbf"):
        encoding = "utf-8-sig"
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif declared and (found := declared.search(data, 0, 4096)):
        encoding = found[1].decode("ascii")
    try:
        text = data.decode(encoding)
    except LookupError:
        raise DataError(f"{name}: the encoding {encoding} is not known; convert the file to UTF-8") from None
    except UnicodeError as error:
        line = data[: getattr(error, "start", 0)].count(b"\n") + 1
        if encoding.lower().startswith("utf-8"):
            raise _not_utf8(f"{name}, line {line}", data) from None
        raise DataError(f"{name}, line {line}: not {encoding.upper()}; convert the file with iconv") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(f"{name}, line {line}: a NUL character; this is not a text file")
    return text, encoding


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise DataError(f"{path}: a .zst file needs the zstandard package: pip install zstandard") from None
    return zstandard


class _ZstReader:
    """Reads a .zst file and raises an error if it is cut short, which zstandard's own reader does not."""

    def __init__(self, file: BufferedReader, zstandard: Any) -> None:
        self._file, self._zstandard = file, zstandard
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._in_frame = False

    def read1(self, _: int) -> bytes:
        """The next bytes, as many as are decompressed at once; none at the end."""
        while compressed := self._file.read(64):  # which decompress to at most 2 MB
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


def uncompressed(path: Path) -> Path:
    """The path without the suffix of a compression."""
    return path.with_suffix("") if path.suffix in COMPRESSIONS else path
