"""What one client may ask of a server."""

from dataclasses import dataclass

from transduce.config import require


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Beyond these a request is refused; no client can make the server hold more than they allow."""

    body_bytes: int = 1_000_000
    """Size of a request's body."""
    characters: int = 20_000
    """Of all texts of a request together."""
    sentences: int = 1_000
    """Lines of all texts of a request together."""
    beam: int = 16
    """Hypotheses kept at each step."""
    nbest: int = 16
    """Outputs for each text."""
    max_extra: int = 200
    """Tokens an output may have beyond its input's."""
    queue: int = 64
    """Requests that wait for room on the device; one more is refused with 429."""
    seconds: float = 60.0
    """From the moment a request is accepted until its last translation."""
    receive_seconds: float = 10.0
    """For a request's header, and again for its body, to arrive."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(value > 0, f"{name} must be above 0")
