"""Parsing of requests that may be JSON or a form."""

from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import ValidationError

from transduce.serve.errors import HttpError
from transduce.serve.request_parsing import JSON, Body, content_type, read_json, validation_message

_URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
FORMS = (_URLENCODED, MULTIPART)
"""Content types of forms."""
_MAX_FIELDS = 1000


async def read_json_or_form(schema: type[Body], request: Request) -> Body:
    """Read the fields of a request: JSON, or a form and the query string, which is where deep-translator puts them.

    If the field `q` occurs several times, it is a list of texts.
    """
    kind = content_type(request)
    if kind == JSON:
        return await read_json(schema, request)
    in_url = _parse_fields(request.url.query)
    if kind == _URLENCODED:
        pairs = await _urlencoded(request)
    elif kind == MULTIPART:
        pairs = await _multipart(request)
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


async def _urlencoded(request: Request) -> list[tuple[str, Any]]:
    """The fields of a URL-encoded form. `curl -d` sends raw UTF-8, which Starlette would decode as Latin-1."""
    try:
        return _parse_fields((await request.body()).decode())
    except UnicodeDecodeError:
        raise HttpError(400, "the form is not UTF-8") from None


def _parse_fields(text: str) -> list[tuple[str, Any]]:
    try:
        return list(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise HttpError(400, f"the form is not UTF-8, or has more than {_MAX_FIELDS:,} fields") from None


async def _multipart(request: Request) -> list[tuple[str, Any]]:
    async with request.form(max_files=0, max_fields=_MAX_FIELDS, max_part_size=2**31) as form:
        return form.multi_items()
