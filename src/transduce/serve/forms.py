"""What the routes' descriptions and answers have in common."""

from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from transduce.serve.refusals import Refusal

JSON = "application/json"
Wanted = TypeVar("Wanted", bound=BaseModel)


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
        421: "The request is for another host.",
        429: "Too many requests are waiting; Retry-After says when to try again.",
        503: "The server is shutting down, or the time for one request is over.",
    }.items()
}


def complaint(error: ValidationError | RequestValidationError) -> str:
    """What is wrong with a request, in one line without the client's text."""
    first = 1 if isinstance(error, RequestValidationError) else 0  # its places begin with "body"
    places = {".".join(map(str, one["loc"][first:])): one["msg"] for one in error.errors()}
    return "; ".join(f"{place}: {message}" if place else message for place, message in places.items())[:500]


def kind_of(request: Request) -> str:
    """A body's content type, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(kind: type[Wanted], request: Request) -> Wanted:
    """A body in JSON. pydantic's own reader is used: it takes no half characters, and no nesting without end."""
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise Refusal(400, complaint(error)) from None


def body_of(kind: type[BaseModel], *content_types: str) -> dict[str, Any]:
    """The description of a body that a route reads by itself."""
    schema = {"schema": kind.model_json_schema()}
    return {"requestBody": {"required": True, "content": dict.fromkeys(content_types, schema)}}


def offered_key(request: Request) -> str | None:
    """The key of an `Authorization: Bearer` header."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
