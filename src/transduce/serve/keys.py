"""API keys: who may translate."""

import hmac
import os
from pathlib import Path

from transduce.errors import ConfigError
from transduce.serve.refusals import Refusal

VARIABLE = "TRANSDUCE_API_KEYS"


class Keys:
    """The keys that open the server; without any it is open to all."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = [key.encode() for key in keys]

    @classmethod
    def read(cls, path: Path | None) -> "Keys":
        """One key a line from a file, or between white space from the environment; never from the command line."""
        if path is None:
            return cls(os.environ.get(VARIABLE, "").split())
        try:
            keys = path.read_text(encoding="utf-8").split()
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: not a text file of keys") from None
        if not keys:
            raise ConfigError(f"{path} holds no key; write one a line")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def check(self, *offered: str | None) -> None:
        """Refuse whoever offers none of the keys; takes the same time wherever a wrong key differs."""
        given = [offer.encode("utf-8", "replace") for offer in offered if offer]
        matches = [hmac.compare_digest(key, offer) for key in self._keys for offer in given]
        if self._keys and not any(matches):
            raise Refusal(403, "an API key is needed" if not given else "invalid API key")
