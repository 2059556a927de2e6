"""Parsing of requests, as JSON or as a form, and OpenAPI descriptions that the routes share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from python_multipart.multipart import parse_options_header

from transduce.serve.limits import HttpError
from transduce.serve.workers import Workers

JSON = "application/json"
_URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
FORMS = (_URLENCODED, MULTIPART)
_MAX_FIELDS = 1000
_MAX_MESSAGES = 100
"""Number of invalid values up to which an error names them."""
_BYTES_PER_COST = 50
"""Bytes of JSON that take as long to parse as a character of text to translate."""
_MAX_KEYS = 20_000
"""Pydantic needs much time for many unknown keys, and no other thread runs in the meantime."""
_MAX_BOUNDARY = 200
"""Bytes of the boundary of a form; RFC 2046 allows 70."""
_MAX_HEAD = 8_192
"""Bytes of the header of a field of a form."""
T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)
Texts = str | Annotated[list[str], Field(fail_fast=True)]
"""A text or several; an error names only the first value that is not a text."""


class ErrorResponse(BaseModel):
    """The body of every error response, except on the paths of OpenAI's interface."""

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
    if isinstance(error, ValidationError) and error.error_count() > _MAX_MESSAGES:
        return f"{error.error_count():,} values are invalid or unknown"  # pydantic could only list all of them
    messages = {".".join(map(str, detail["loc"][first:])): detail["msg"] for detail in error.errors()}
    return "; ".join(f"{field}: {message}" if field else message for field, message in messages.items())[:500]


def content_type(request: Request) -> str:
    """The content type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(schema: type[Body], request: Request, workers: Workers) -> Body:
    """Parse a JSON body with pydantic's parser, which rejects lone surrogates and limits nesting."""
    if content_type(request) != JSON:
        raise HttpError(415, f"send {JSON}")
    body = await request.body()
    if body.count(b'":') > _MAX_KEYS:
        raise HttpError(413, f"the JSON has more than the {_MAX_KEYS:,} keys allowed")
    return await workers.run(len(body) // _BYTES_PER_COST, _validated, schema.model_validate_json, body)


async def read_json_or_form(schema: type[Body], request: Request, workers: Workers) -> Body:
    """Read the fields of a request: JSON, or a form and the query string, which is where deep-translator puts them.

    If the field `q` occurs several times, it is a list of texts.
    """
    if content_type(request) == JSON:
        return await read_json(schema, request, workers)
    body = await request.body()
    return await workers.run(len(body), _read_form, schema, request, body)


def _validated(validate: Callable[[T], Body], data: T) -> Body:
    try:
        return validate(data)
    except ValidationError as error:
        raise HttpError(400, validation_message(error)) from None


def _read_form(schema: type[Body], request: Request, body: bytes) -> Body:
    kind, in_url = content_type(request), _parse_fields(request.url.query)
    if kind == _URLENCODED:
        if body.lstrip().startswith(b"{"):  # `curl -d` sends any text as a form
            raise HttpError(415, f"the form is JSON; send it with the header Content-Type: {JSON}")
        try:  # `curl -d` sends raw UTF-8, which Starlette would decode as Latin-1
            pairs = _parse_fields(body.decode())
        except UnicodeDecodeError:
            raise HttpError(400, "the form is not UTF-8") from None
    elif kind == MULTIPART:
        pairs = parse_multipart(request, body, max_files=0, max_fields=_MAX_FIELDS)
    elif in_url and not body:
        pairs = []
    else:
        raise HttpError(415, f"send {JSON} or a form ({' or '.join(FORMS)})")
    pairs = [*in_url, *pairs]
    fields: dict[str, Any] = dict(pairs)
    if len(texts := [value for name, value in pairs if name == "q"]) > 1:
        fields["q"] = texts
    return _validated(schema.model_validate, fields)


@dataclass(frozen=True)
class FormFile:
    """A file in a form."""

    name: str
    data: bytes


def parse_multipart(
    request: Request, body: bytes, *, max_files: int, max_fields: int
) -> list[tuple[str, str | FormFile]]:
    """The fields of a form. The body is only searched for the boundary, which takes a moment whatever it contains."""
    boundary = parse_options_header(request.headers["content-type"])[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= _MAX_BOUNDARY:
        raise HttpError(400, "the form has no boundary, or one that is too long")
    most = max_files + max_fields
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, most + 2)
    ends = [number for number, part in enumerate(parts) if part.startswith(b"--")]
    if not ends:
        problem = f"has more than {most:,} fields" if len(parts) > most else "is incomplete"
        raise HttpError(400, f"the form {problem}")
    fields = [_parse_part(part) for part in parts[: ends[0]]]
    for kind, what, limit in ((FormFile, "files", max_files), (str, "fields", max_fields)):
        if sum(isinstance(value, kind) for _, value in fields) > limit:
            raise HttpError(400, f"the form has more than {limit:,} {what}")
    return fields


def _parse_part(part: bytes) -> tuple[str, str | FormFile]:
    head, end, content = part.partition(b"\r\n\r\n")
    if not end or len(head) > _MAX_HEAD:
        raise HttpError(400, "a field of the form has no header, or one that is too long")
    headers = dict(line.partition(b":")[::2] for line in head.split(b"\r\n"))
    value = next((value for name, value in headers.items() if name.strip().lower() == b"content-disposition"), b"")
    options = parse_options_header(value)[1]
    try:
        if b"name" not in options:
            raise HttpError(400, "a field of the form has no name")
        name = options[b"name"].decode()
        if b"filename" in options:
            return name, FormFile(options[b"filename"].decode(), content)
        return name, content.decode()
    except UnicodeDecodeError:
        raise HttpError(400, "the form is not UTF-8") from None


def _parse_fields(text: str) -> list[tuple[str, Any]]:
    try:
        return list(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise HttpError(400, f"the form is not UTF-8, or has more than {_MAX_FIELDS:,} fields") from None


def request_body(schema: type[BaseModel], *content_types: str) -> dict[str, Any]:
    """The OpenAPI description of a body that the route parses itself."""
    described = schema.model_json_schema()
    definitions = described.pop("$defs", {})  # a reference to them would be one to the whole description

    def inlined(part: Any) -> Any:
        if isinstance(part, dict):
            if "$ref" in part:
                return inlined(definitions[part["$ref"].rpartition("/")[2]])
            return {name: inlined(value) for name, value in part.items()}
        return [inlined(value) for value in part] if isinstance(part, list) else part

    content = {"schema": inlined(described)}
    return {"requestBody": {"required": True, "content": dict.fromkeys(content_types, content)}}
