"""Files and folders that are whole or not there at all, whatever ends the process or the machine meanwhile."""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import ModelError

MANIFEST = "manifest.json"
"""Names the sha256 of every other file of its folder, so that damage is found before it is used."""


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step: whoever is killed meanwhile leaves the old one."""
    work = path.with_name(f".{path.name}.tmp")
    try:
        with work.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        work.replace(path)
    finally:
        work.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when the block is left without an error, and is gone otherwise."""
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
    """Have a folder and its files on the disk, and not only in memory, when this returns."""
    for path in [*folder.iterdir(), folder]:
        flush(path)


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_manifest(folder: Path) -> None:
    """Write down what every file of a folder is now."""
    digests = {path.name: digest(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(_layout(digests), encoding="utf-8")


def damaged_file(folder: Path, needed: Collection[str], *, others: bool = True) -> tuple[Path, str] | None:
    """The first file that is not what the manifest says, and how; None where the needed ones are, and the others."""
    manifest = folder / MANIFEST
    try:
        text = manifest.read_bytes().decode()
        noted = json.loads(text)
        if not isinstance(noted, dict) or _layout(noted) != text:
            return manifest, "is damaged"
    except FileNotFoundError:
        return manifest, "is missing"
    except (OSError, ValueError, RecursionError) as error:
        return manifest, f"cannot be read: {error}"
    if missing := set(needed) - noted.keys():
        return manifest, f"is incomplete, without {min(missing)}"
    for name in noted if others else needed:
        try:
            if digest(folder / name) != noted[name]:
                return folder / name, "is damaged"
        except FileNotFoundError:
            return folder / name, "is missing"
        except OSError as error:
            return folder / name, f"cannot be read: {error.strerror}"
    return None


def digest(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_file(path: Path, most_bytes: int, limit: str) -> None:
    """Refuse what is no plain file (a device would never end) and what is larger than the limit."""
    if not path.is_file():
        raise ModelError(f"{path}: {'not a plain file' if path.exists() else 'no such file'}")
    if (size := path.stat().st_size) > most_bytes:
        raise ModelError(f"{path}: {size:,} bytes are more than {limit}")


def _layout(digests: dict[str, str]) -> str:
    return json.dumps(digests, indent=1)
