"""API keys."""

import hmac
import os
from pathlib import Path

from transduce.disk import require_file
from transduce.errors import ConfigError
from transduce.serve.errors import HttpError

ENVIRONMENT_VARIABLE = "TRANSDUCE_API_KEYS"
_MAX_BYTES = 1 << 20


class ApiKeys:
    """The accepted API keys; if there are none, no key is required."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = [key.encode() for key in keys]

    @classmethod
    def read(cls, path: Path | None) -> "ApiKeys":
        """Read keys separated by white space from a file, or without a file from the environment variable."""
        if path is None:
            value = os.environ.get(ENVIRONMENT_VARIABLE)
            keys = (value or "").split()
            if value is not None and not keys:
                raise ConfigError(f"{ENVIRONMENT_VARIABLE} contains no API key; unset it to serve without keys")
            return cls(keys)
        require_file(path, _MAX_BYTES, "a file of API keys may have")
        try:
            keys = path.read_text(encoding="utf-8").split()
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: not a UTF-8 text file; write one API key per line") from None
        if not keys:
            raise ConfigError(f"{path} contains no API key; write one key per line")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def check(self, *candidates: str | None) -> None:
        """Raise HttpError 403 unless one of the candidates is an accepted key; comparisons take constant time."""
        given = [candidate.encode("utf-8", "replace") for candidate in candidates if candidate]
        matches = [hmac.compare_digest(key, candidate) for key in self._keys for candidate in given]
        if self._keys and not any(matches):
            raise HttpError(403, "an API key is required" if not given else "invalid API key")
