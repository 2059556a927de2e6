"""Request parsing and OpenAPI descriptions that the routes share."""

from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from transduce.serve.errors import HttpError

JSON = "application/json"
Body = TypeVar("Body", bound=BaseModel)


class ErrorResponse(BaseModel):
    """The body of every error response."""

    error: str


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in {
        400: "The request is invalid, or there is no model for it.",
        403: "The API key is missing or invalid.",
        408: "The body did not arrive in time.",
        413: "The request contains more text than is allowed.",
        415: "The content type of the body is not supported.",
        421: "The request is addressed to another host.",
        429: "Too many requests are waiting; Retry-After says when to try again.",
        503: "The server is shutting down, or the time limit for one request was exceeded.",
    }.items()
}


def validation_message(error: ValidationError | RequestValidationError) -> str:
    """Describe a validation error in one line, without the client's text."""
    first = 1 if isinstance(error, RequestValidationError) else 0  # its locations begin with "body"
    messages = {".".join(map(str, detail["loc"][first:])): detail["msg"] for detail in error.errors()}
    return "; ".join(f"{field}: {message}" if field else message for field, message in messages.items())[:500]


def content_type(request: Request) -> str:
    """The content type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(schema: type[Body], request: Request) -> Body:
    """Parse a JSON body with pydantic's parser, which rejects lone surrogates and limits nesting."""
    try:
        return schema.model_validate_json(await request.body())
    except ValidationError as error:
        raise HttpError(400, validation_message(error)) from None


def request_body(schema: type[BaseModel], *content_types: str) -> dict[str, Any]:
    """The OpenAPI description of a body that the route parses itself."""
    content = {"schema": schema.model_json_schema()}
    return {"requestBody": {"required": True, "content": dict.fromkeys(content_types, content)}}


def bearer_token(request: Request) -> str | None:
    """The token of an `Authorization: Bearer` header."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
