"""API keys."""

import hashlib
import hmac
import os
from pathlib import Path

from starlette.requests import Request

from transduce.disk import require_file
from transduce.errors import ConfigError
from transduce.serve.limits import HttpError

ENVIRONMENT_VARIABLE = "TRANSDUCE_API_KEYS"
_MAX_BYTES = 1 << 20


class ApiKeys:
    """The accepted API keys; if there are none, no key is required."""

    def __init__(self, keys: list[str]) -> None:
        self._pepper = os.urandom(16)
        self._digests = {self._digest(key) for key in keys}

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
        return bool(self._digests)

    def _digest(self, key: str) -> bytes:
        """A digest that nobody else can compute: how long it takes to look it up tells nothing about the keys."""
        return hmac.digest(self._pepper, key.encode("utf-8", "replace"), hashlib.sha256)

    def check(self, request: Request, key: str | None = None) -> None:
        """Raise HttpError 403 unless the request's bearer token, or the key in its body, is an accepted key."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else None
        candidates = [candidate for candidate in (key, bearer) if candidate]
        if self._digests and self._digests.isdisjoint(map(self._digest, candidates)):
            raise HttpError(403, "invalid API key" if candidates else "an API key is required")
