"""How requests go wrong: in words for the client, without the client's words for the log."""

import traceback


class Refusal(Exception):  # noqa: N818
    """A request is answered with this status and `{"error": message}`."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}


def busy() -> Refusal:
    """The queue is full."""
    return Refusal(429, "too many requests are waiting; try again in a moment", retry_after=1)


def stopping() -> Refusal:
    """No new requests are taken."""
    return Refusal(503, "the server is shutting down", retry_after=5)


def place(error: BaseException) -> str:
    """An error's kind and place. Not its message, which may hold a client's text."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else "")
