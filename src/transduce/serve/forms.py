"""What the routes' descriptions and answers have in common."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from pydantic import BaseModel


class Problem(BaseModel):
    """Why a request was refused."""

    error: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": words}
    for status, words in {
        400: "The request cannot be understood, or asks for what there is not.",
        403: "An API key is needed, or the one given is not valid.",
        408: "The body did not arrive in time.",
        413: "More text than is allowed at once.",
        415: "A body of a kind that is not taken.",
        429: "Too many requests are waiting; Retry-After says when to try again.",
        503: "The server is shutting down, or the time for one request is over.",
    }.items()
}


def complaint(errors: Sequence[Any]) -> str:
    """What is wrong with a request, in one line without the client's own words."""
    places = {".".join(str(part) for part in error["loc"] if part != "body"): error["msg"] for error in errors}
    return "; ".join(f"{place}: {message}" if place else message for place, message in places.items())[:500]


def offered_key(request: Request) -> str | None:
    """The key of an `Authorization: Bearer` header."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
