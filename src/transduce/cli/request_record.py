"""What an unfinished output was asked for, so that --resume continues it with the same language, model and options."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.disk import write_atomically
from transduce.errors import ConfigError
from transduce.models.folder import CARD, weights_path

if TYPE_CHECKING:
    from transduce.search.options import SearchConfig

_COMPARED_BYTES = 1 << 16
"""Number of bytes at the end of the weights by which models are told apart: training changes all of them."""


def request(
    folders: Sequence[Path],
    to: str | None,
    search: "SearchConfig | Mapping[str, object]",
    wording: Mapping[str, Any] | None = None,
    **others: object,
) -> dict[str, str]:
    """What decides the translation of a line, by its name in messages."""
    wording = dict(wording or {})
    if terms := wording.get("glossary"):
        wording["glossary"] = sorted(terms.terms.items())
    values = {
        "target language": to,
        "model": [_identity(folder) for folder in folders],
        "search": search,
        **wording,
        **others,
    }
    return {name: hashlib.sha256(repr(value).encode()).hexdigest() for name, value in values.items()}


class RequestRecord:
    """A file next to an output until this is complete."""

    def __init__(self, out: Path, request: Mapping[str, str]) -> None:
        self._out, self._request = out, request
        self._path = out.with_name(f".{out.name}.request.json")

    def require_same(self) -> None:
        """Raise an error if the output was begun with another request; one that was complete has no record."""
        if not self._path.exists():
            return
        try:
            begun = json.loads(self._path.read_bytes())
            others = [name for name, value in self._request.items() if begun.get(name) != value]
        except (ValueError, AttributeError):
            raise ConfigError(f"{self._path} is damaged; remove it to resume {self._out}") from None
        if others:
            other = " and ".join(others)
            raise ConfigError(
                f"{self._out} was begun with another {other}; resume it the same way, or name another --out"
            )

    def write(self) -> None:
        """Write the record; if only the output itself may be written, there is none."""
        with suppress(PermissionError):
            write_atomically(self._path, json.dumps(self._request, indent=1).encode())

    def remove(self) -> None:
        """Remove the record of an output that is complete."""
        self._path.unlink(missing_ok=True)


def _identity(folder: Path) -> str:
    """A digest of the card and the end of the weights."""
    card = (folder / CARD).read_bytes()
    weights = weights_path(folder, json.loads(card))
    with weights.open("rb") as file:
        file.seek(max(0, weights.stat().st_size - _COMPARED_BYTES))
        return hashlib.sha256(card + file.read()).hexdigest()
