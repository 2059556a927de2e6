"""Errors that are sent to the client, and the location of errors for the log."""

import traceback


class HttpError(Exception):
    """Ends a request with this status and the body `{"error": message}`."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}


def queue_full_error() -> HttpError:
    """429: the queue is full."""
    return HttpError(429, "too many requests are waiting; try again in a moment", retry_after=1)


def error_location(error: BaseException) -> str:
    """The type of an error and the line that raised it. The message is left out: it may contain a client's text."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else "")
