"""Labelled texts and images. Images are arrays of bytes: height, width, channels."""

import gzip
import json
import lzma
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transduce.errors import DataError
from transduce.files.files import raw_lines
from transduce.files.pair_formats import JSONL, NO_TAB, TSV, UnusableError, decode, format_suffix
from transduce.files.pairs import Corpus, ReadReport, require_usable
from transduce.files.parquet import is_table, read_table
from transduce.files.readers import Reader, single_file

BAD_ROW = 'not a row with a text "text" and a "label"'
_TEXT_NAMES = ("text", "sentence")
_LABEL_NAME = "label"

Columns = tuple[int, int]
"""The columns of text and label."""
Image = npt.NDArray[np.uint8]
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_MAX_BYTES = 1 << 33
"""Limit for the images of one file, which are in memory at the same time."""
_IDX_BYTES = 8
"""The code of unsigned bytes in the header of an IDX file."""


def read_labelled(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the texts of a corpus and their labels; an unusable line is left out and counted.

    A .tsv file has text, tab, label on each line, or the columns that its first line names: text (or sentence) and
    label. A .jsonl file or a table has rows with the fields text (or sentence) and label. `reverse` has no meaning.
    """
    report.noun = "text"
    for files in corpus:
        name = single_file(files)
        for number, parse in _rows(name):
            try:
                row = parse()
            except UnusableError as problem:
                report.note(str(problem), name, number)
            else:
                report.pairs += 1
                yield row
    require_usable(corpus, report, "labelled text")


def _rows(name: str) -> Iterator[tuple[int, Callable[[], tuple[str, str]]]]:
    """The number of each line or row, and what gives its text and label, or raises an UnusableError."""
    path, suffix = Path(name), format_suffix(Path(name))
    if is_table(path):
        for number, row in enumerate(read_table(path, (*_TEXT_NAMES, _LABEL_NAME)), start=1):
            yield number, partial(_text_and_label, row)
    elif suffix in (*TSV.suffixes, *JSONL.suffixes):
        columns = (0, 1)
        for number, raw in enumerate(raw_lines(path), start=1):
            if suffix in JSONL.suffixes:
                yield number, partial(_parse_json, raw)
            elif number == 1 and raw is not None and (named := _named_columns(raw)):
                columns = named
            else:
                yield number, partial(_parse_tsv, raw, columns)
    else:
        raise DataError(f"{name}: labelled texts are .tsv (text, tab, label) or .jsonl (text and label)")


def _named_columns(raw: bytes) -> Columns | None:
    """The columns of text and label, if the line has the names of columns."""
    names = [name.strip().lower() for name in raw.decode("utf-8", "replace").split("\t")]
    text = next((names.index(name) for name in _TEXT_NAMES if name in names), None)
    return (text, names.index(_LABEL_NAME)) if text is not None and _LABEL_NAME in names else None


def _parse_tsv(raw: bytes | None, columns: Columns) -> tuple[str, str]:
    decode(raw)
    assert raw is not None
    values = raw.split(b"\t")
    if len(values) <= max(columns):
        raise UnusableError(NO_TAB)
    text, label = (decode(values[column]).strip() for column in columns)
    return text, label


def _parse_json(raw: bytes | None) -> tuple[str, str]:
    row = decode(raw)
    try:
        return _text_and_label(json.loads(row))
    except (ValueError, RecursionError):
        raise UnusableError(BAD_ROW) from None


def _text_and_label(row: Any) -> tuple[str, str]:
    try:
        text = next(row[name] for name in _TEXT_NAMES if name in row)
        label = row[_LABEL_NAME]
        if not isinstance(label, str | int):
            raise TypeError
        return decode(text.encode()).strip(), decode(" ".join(str(label).split()).encode())
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration):
        raise UnusableError(BAD_ROW) from None


LABELLED = Reader(("text", "label"), read_labelled, labels=True)


def load_image(path: Path, channels: int | None = None, size: tuple[int, int] | None = None) -> Image:
    """Read an image file, in grey (1 channel) or colour (3), by default as it is stored; `size` is height, width."""
    with _opened(path) as image:
        picture = _in_8_bits(image, path).convert("L" if (channels or _channels(image)) == 1 else "RGB")
        if size is not None and picture.size != size[::-1]:
            from PIL.Image import Resampling

            picture = picture.resize(size[::-1], Resampling.BILINEAR)
        return np.asarray(picture, np.uint8).reshape(picture.height, picture.width, -1)


def folder_images(folder: Path) -> Iterator[tuple[Image, str, str]]:
    """Each image of a folder that has a subfolder for each class, the class, and the name of the file.

    If one of them is in colour, all are.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    paths: list[Path] = []
    for of_class in classes:
        images = sorted(path for path in of_class.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
        if not images:
            raise DataError(f"{of_class}: the class has no image ({', '.join(IMAGE_SUFFIXES)})")
        paths += images
    channels = 1
    for path in paths:
        with _opened(path) as image:
            channels = max(channels, _channels(image))
    for path in paths:
        yield load_image(path, channels), path.parent.name, str(path)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An image file, whose pixels are not read yet; what goes wrong with it is a DataError."""
    try:
        import PIL.Image
    except ImportError:
        raise DataError(f"{path}: image files need the package Pillow: pip install pillow") from None
    _require_plain_file(path)
    try:
        with PIL.Image.open(path) as image:
            yield image
    except DataError:
        raise
    except Exception as error:  # the package raises whatever a damaged file leads to
        raise DataError(f"{path}: not an image that can be read: {error}") from None


def _channels(image: Any) -> int:
    """1 for an image of Pillow in grey, 3 for one in colour."""
    return 1 if image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16") else 3


def _in_8_bits(image: Any, path: Path) -> Any:
    """An image of Pillow, which would make white of all but the darkest pixels if it converted 16 bits itself."""
    from PIL.Image import fromarray

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        return fromarray(np.round(np.asarray(image) / 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DataError(f"{path}: pixels of 32 bits, whose range is not known; convert it to 8 or 16 bits")
    return image


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, the format of MNIST; it may be compressed."""
    _require_plain_file(path)
    try:
        opened: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opened(path, "rb") as file:
            header = file.read(4)
            if len(header) < 4 or header[:2] != b"\0\0" or header[2] != _IDX_BYTES or not 1 <= header[3] <= 4:
                raise DataError(f"{path}: not an IDX file of unsigned bytes")
            shape = [int.from_bytes(file.read(4), "big") for _ in range(header[3])]
            if (size := math.prod(shape)) > _MAX_BYTES:
                raise DataError(f"{path}: {size:,} values are more than the {_MAX_BYTES:,} that are read")
            content = file.read(size + 1)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error!s:.200}") from None
    if len(content) != size:
        found = f"{len(content):,}" if len(content) < size else "more"
        raise DataError(f"{path}: damaged: it has {found} values, but its header says {size:,}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_npz(path: Path) -> tuple[npt.NDArray[np.uint8], list[str]]:
    """The images and labels of a .npz file with an array `images` (or `x`) of bytes and `labels` (or `y`)."""
    _require_plain_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if (size := sum(member.file_size for member in archive.infolist())) > _MAX_BYTES:
                raise DataError(f"{path}: {size:,} bytes are more than the {_MAX_BYTES:,} that are read")
        with np.load(path, allow_pickle=False) as content:
            images, labels = (
                next((content[name] for name in names if name in content), None)
                for names in (("images", "x"), ("labels", "y"))
            )
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise whatever a damaged file leads to
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error!s:.200}") from None
    if images is None or labels is None:
        raise DataError(f"{path}: it needs the arrays images and labels")
    return images, [str(label) for label in labels.reshape(-1).tolist()]


def _require_plain_file(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"{path}: {'not a plain file' if path.exists() else 'no such file'}")


def as_images(array: npt.NDArray[Any], where: str) -> npt.NDArray[np.uint8]:
    """An array of images (number, height, width) or (number, height, width, channels), with channels."""
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or array.shape[-1] == 0:
        raise DataError(
            f"{where}: images must be bytes (uint8) in an array of number, height, width and perhaps channels, not "
            f"{array.dtype} with the shape {array.shape}"
        )
    return array if array.ndim == 4 else array[..., None]


def read_images(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[Image, str]]:
    """Yield the images of a corpus (height, width, channels) and their labels; all must have the same size.

    An entry is a folder with a subfolder of image files for each class, a .npz file with `images` and `labels`, or two
    IDX files, of images and of labels. `reverse` has no meaning for them.
    """
    report.noun = "image"
    shape: tuple[int, ...] | None = None
    for files in corpus:
        for image, label, where in _entry_images(files):
            shape = shape or image.shape
            if image.shape != shape:
                raise DataError(f"{where}: {_size(image.shape)}, but others have {_size(shape)}; resize them first")
            report.pairs += 1
            yield image, label
    require_usable(corpus, report, "image")


def _size(shape: tuple[int, ...]) -> str:
    height, width, channels = shape
    return f"{width} x {height} pixels of {channels} {'channel' if channels == 1 else 'channels'}"


def _entry_images(files: tuple[str, ...]) -> Iterator[tuple[Image, str, str]]:
    """Each image, its label and its place."""
    path = Path(files[0])
    if len(files) == 2:
        images, labels = (
            as_images(read_idx(path), files[0]),
            [str(label) for label in read_idx(Path(files[1])).tolist()],
        )
    elif path.is_dir():
        yield from folder_images(path)
        return
    elif len(files) == 1 and path.suffix == ".npz":
        array, labels = read_npz(path)
        images = as_images(array, files[0])
    else:
        raise DataError(
            f"{' + '.join(files)}: images are a folder with a subfolder for each class, a .npz file, or two IDX files, "
            "of images and of labels"
        )
    if len(images) != len(labels):
        raise DataError(f"{' + '.join(files)}: {len(images):,} images, but {len(labels):,} labels")
    for number, (image, label) in enumerate(zip(images, labels, strict=True), start=1):
        yield image, label, f"{files[0]}, image {number}"


IMAGES = Reader(
    ("image", "label"),
    read_images,
    arrays=True,
    labels=True,
    revision="16 bits as 8",  # older versions made most pixels of such images white
)
