"""Parsing of requests, as JSON or as a form, and OpenAPI descriptions that the routes share."""

from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from transduce.serve.limits import HttpError

JSON = "application/json"
_URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
FORMS = (_URLENCODED, MULTIPART)
_MAX_FIELDS = 1000
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
    if content_type(request) != JSON:
        raise HttpError(415, f"send {JSON}")
    try:
        return schema.model_validate_json(await request.body())
    except ValidationError as error:
        raise HttpError(400, validation_message(error)) from None


async def read_json_or_form(schema: type[Body], request: Request) -> Body:
    """Read the fields of a request: JSON, or a form and the query string, which is where deep-translator puts them.

    If the field `q` occurs several times, it is a list of texts.
    """
    kind = content_type(request)
    if kind == JSON:
        return await read_json(schema, request)
    in_url = _parse_fields(request.url.query)
    if kind == _URLENCODED:
        try:  # `curl -d` sends raw UTF-8, which Starlette would decode as Latin-1
            pairs = _parse_fields((await request.body()).decode())
        except UnicodeDecodeError:
            raise HttpError(400, "the form is not UTF-8") from None
    elif kind == MULTIPART:
        async with request.form(max_files=0, max_fields=_MAX_FIELDS, max_part_size=2**31) as form:
            pairs = form.multi_items()
    elif in_url and not await request.body():
        pairs = []
    else:
        raise HttpError(415, f"send {JSON} or a form ({' or '.join(FORMS)})")
    pairs = [*in_url, *pairs]
    fields: dict[str, Any] = dict(pairs)
    if len(texts := [value for name, value in pairs if name == "q"]) > 1:
        fields["q"] = texts
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        raise HttpError(400, validation_message(error)) from None


def _parse_fields(text: str) -> list[tuple[str, Any]]:
    try:
        return list(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise HttpError(400, f"the form is not UTF-8, or has more than {_MAX_FIELDS:,} fields") from None


def request_body(schema: type[BaseModel], *content_types: str) -> dict[str, Any]:
    """The OpenAPI description of a body that the route parses itself."""
    content = {"schema": schema.model_json_schema()}
    return {"requestBody": {"required": True, "content": dict.fromkeys(content_types, content)}}
