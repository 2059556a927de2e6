"""Files and folders that are written atomically: complete or absent, even if the process or the machine stops."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import ModelError

MANIFEST = "manifest.json"
"""Holds the sha256 of every other file in its folder, so that a damaged file is detected before it is used."""

_MANIFEST_BYTES = 1 << 22


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: if the process is killed meanwhile, the old file stays."""
    with atomic_file(path) as work:
        work.write_bytes(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to; the file is renamed to `path` if the block succeeds, and removed if not.

    A path that cannot be written is an error before the block, whose work would be lost.
    """
    if not path.parent.is_dir() or path.is_dir():
        number = errno.EISDIR if path.is_dir() else errno.ENOENT
        raise OSError(number, os.strerror(number), str(path))
    work = path.with_name(f".{path.name}.tmp")
    try:
        yield work
        flush(work)
        work.replace(path)
    finally:
        work.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill; it is renamed to `path` if the block succeeds, and removed if not."""
    work = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed
    try:
        work.mkdir(parents=True)
        yield work
        flush_folder(work)
        work.rename(path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def flush_folder(folder: Path) -> None:
    for path in [*folder.iterdir(), folder]:
        flush(path)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """The sha256 of the bytes of a plain file."""
    _require_plain(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path) -> None:
    """Write the sha256 of every other file in a folder to its manifest, which a killed process may have left there."""
    digests = {path.name: digest(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}
    (folder / MANIFEST).write_text(_layout(digests), encoding="utf-8")


def damaged_file(
    folder: Path, needed: Collection[str], *, others: bool = True, digest_of: Callable[[Path], str] = digest
) -> tuple[Path, str] | None:
    """The first file that differs from the manifest, and how; None if all are as recorded.

    The `needed` files must be in the manifest; without `others`, only they are checked.
    """
    manifest = folder / MANIFEST
    try:
        _require_plain(manifest)
        if manifest.stat().st_size > _MANIFEST_BYTES:
            return manifest, "is damaged"
        text = manifest.read_bytes().decode()
        recorded = json.loads(text)
        if not isinstance(recorded, dict) or _layout(recorded) != text:
            return manifest, "is damaged"
    except FileNotFoundError:
        return manifest, "is missing"
    except (OSError, ValueError, RecursionError) as error:
        return manifest, f"cannot be read: {error}"
    if missing := set(needed) - recorded.keys():
        return manifest, f"is incomplete, without {min(missing)}"
    for name in recorded if others else needed:
        try:
            if digest_of(folder / name) != recorded[name]:
                return folder / name, "is damaged"
        except FileNotFoundError:
            return folder / name, "is missing"
        except OSError as error:
            return folder / name, f"cannot be read: {error.strerror or error}"
    return None


def require_file(path: Path, most_bytes: int, limit: str) -> None:
    """Raise an error unless this is a plain file (a device might never end) of at most `most_bytes` bytes."""
    if not path.is_file():
        raise ModelError(f"{path}: {'not a plain file' if path.exists() else 'no such file'}")
    if (size := path.stat().st_size) > most_bytes:
        raise ModelError(f"{path}: {size:,} bytes are more than {limit}")


def _require_plain(path: Path) -> None:
    """Raise OSError for a FIFO, which would block, or a device, which might never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "not a plain file", str(path))


def _layout(digests: dict[str, str]) -> str:
    return json.dumps(digests, indent=1)
