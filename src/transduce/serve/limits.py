"""Limits on a request to the server, and the errors that end a request."""

import traceback
from dataclasses import dataclass
from typing import Any

from transduce.config import require


@dataclass(frozen=True, kw_only=True)
class Limits:
    """A request that exceeds one of these is refused."""

    body_bytes: int = 1_000_000
    """Maximum size of a request body."""
    characters: int = 20_000
    """Maximum number of characters of all texts of a request, its prefix and its glossary."""
    html_characters: int = 200_000
    """Maximum number of characters of all HTML texts of a request, with their tags."""
    sentences: int = 1_000
    """Maximum number of lines of all texts of a request."""
    terms: int = 1_000
    """Maximum number of terms of a glossary."""
    term_characters: int = 200
    """Maximum number of characters of a term of a glossary, and of its translation."""
    file_bytes: int = 10_000_000
    """Maximum size of a request body with a file to translate."""
    file_characters: int = 1_000_000
    """Maximum number of characters of the texts in a file."""
    file_elements: int = 500_000
    """Maximum number of elements in a file; a text counts as two."""
    file_seconds: float = 1_800.0
    """Timeout of the translation of a file."""
    files: int = 8
    """Maximum number of files that are being translated; further files are refused with 429."""
    kept_files: int = 64
    """Maximum number of translated files that wait for their download; the oldest is deleted first."""
    kept_bytes: int = 100_000_000
    """Maximum size of all these files, which are in memory; the oldest is deleted first."""
    kept_minutes: float = 30.0
    """Time after which a translated file is deleted."""
    suggestion_bytes: int = 100_000_000
    """Maximum size of the file of suggestions; further suggestions are refused."""
    beam: int = 16
    """Maximum value of the search option beam."""
    nbest: int = 16
    """Maximum value of the search option nbest."""
    output_tokens: int = 400_000
    """Maximum cost of a request: the sum of the maximum lengths of all outputs, in tokens, times beam (nbest, if sample
    is set), with the searches that may be repeated because an output must contain certain text."""
    max_extra: int = 200
    """Maximum value of the search option max_extra."""
    max_length: int = 1_000
    """Maximum value of the search option max_length."""
    cache_bytes: int = 2_000_000_000
    """Maximum size of the KV caches of all small requests to language models, and of all others. A request has at most
    a quarter of it, unless a single output needs more; it is refused if that exceeds the limit."""
    queue: int = 64
    """Maximum number of queued requests; further requests are refused with 429."""
    seconds: float = 60.0
    """Timeout of a request, from its acceptance to its last translation."""
    work_seconds: float = 30.0
    """Timeout of each piece of work of a request outside of the search, such as parsing HTML."""
    receive_seconds: float = 10.0
    """Timeout for receiving the headers of a request, and again for its body."""
    send_seconds: float = 30.0
    """A client that reads nothing of its response for this long is disconnected."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(value > 0, f"{name} must be above 0")


OPENAI_PATHS = ("/v1/completions", "/v1/models")
"""The paths of OpenAI's interface."""


def error_body(path: str, status: int, message: str) -> dict[str, Any]:
    """The body of an error: `{"error": message}`, or an object on the paths of OpenAI, whose client shows no text."""
    if path not in OPENAI_PATHS:
        return {"error": message}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class HttpError(Exception):
    """Ends a request with this status and the body of `error_body`.

    With status 429 or 503, the response tells the seconds after which the client may try again.
    """

    def __init__(self, status: int, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {"retry-after": str(retry_after)} if status in (429, 503) else {}


class QueueFullError(HttpError):
    """The maximum number of requests is waiting."""

    def __init__(self) -> None:
        super().__init__(429, "too many requests are waiting; try again in a moment")


def error_location(error: BaseException) -> str:
    """The type of an error and the line that raised it. The message is left out: it may contain a client's text."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else "")
