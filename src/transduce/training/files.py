"""Files that are there whole or not at all."""

from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step: whoever is killed meanwhile leaves the old one."""
    work = path.with_name(f".{path.name}.tmp")
    work.write_bytes(content)
    work.replace(path)
