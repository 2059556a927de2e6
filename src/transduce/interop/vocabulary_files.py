"""Reading the files of vocabularies and settings: JSON and lists of tokens."""

import json
from pathlib import Path
from typing import Any

from transduce.disk import require_file
from transduce.errors import ModelError

_MAX_BYTES = 1 << 26


def read_json(path: Path, default: Any = None) -> Any:
    """The object in a JSON file; the default, if there is one, for a missing file."""
    if default is not None and not path.exists():
        return default
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a JSON object")
    return content


def read_list(path: Path) -> list[str]:
    """The texts in a JSON list, or the lines of a `.txt` file."""
    if path.suffix == ".txt":
        try:
            return read_bytes(path).decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise ModelError(f"{path}: not UTF-8: {error}") from None
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, list) or not all(isinstance(text, str) for text in content):
        raise ModelError(f"{path}: not a list of texts")
    return content


def read_ids(path: Path) -> dict[str, int]:
    """The tokens of a `vocab.json`, in the order of their ids."""
    vocabulary = read_json(path)
    by_id = {number: token for token, number in vocabulary.items() if isinstance(number, int)}
    if by_id.keys() != set(range(len(vocabulary))):
        raise ModelError(f"{path}: the ids of its tokens are not 0, 1, 2 and so on")
    return {by_id[number]: number for number in range(len(by_id))}


def read_bytes(path: Path) -> bytes:
    """The content of a file, which may not be larger than vocabularies are."""
    require_file(path, _MAX_BYTES, "such a file can have")
    return path.read_bytes()
