"""Forms with files (multipart/form-data), as clients write them and damaged."""

from typing import Any

import httpx
import pytest
from fastapi import Request

from transduce.serve.limits import HttpError
from transduce.serve.request_parsing import FormFile, parse_multipart


def form(body: bytes, boundary: str = "x") -> list[tuple[str, Any]]:
    headers = [(b"content-type", f"multipart/form-data; boundary={boundary}".encode())]
    return parse_multipart(Request({"type": "http", "headers": headers}), body, max_files=1, max_fields=2)


def test_a_form_is_read_as_httpx_writes_it() -> None:
    for data in (b"", b"--x--", b"\r\n--y\r\n\r\n--", b"\r\n" * 9, bytes(range(256))):
        request = httpx.Request("POST", "http://a", data={"a": "ü\r\n", "b": ""}, files={"f": ("n ü.txt", data)})
        boundary = request.headers["content-type"].partition("boundary=")[2]
        assert form(request.read(), boundary) == [("a", "ü\r\n"), ("b", ""), ("f", FormFile("n ü.txt", data))]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the form is incomplete"),
        (b"--x\r\n" * 9, "the form has more than 3 fields"),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb", "the form is incomplete"),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n--x--", "has no header"),
        (b"--x\r\n" + b"a" * 9000 + b"\r\n\r\nb\r\n--x--", "one that is too long"),
        (b"--x\r\nContent-Type: text/plain\r\n\r\nb\r\n--x--", "has no name"),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\xff\r\n--x--", "not UTF-8"),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n" * 3 + b"--x--", "more than 2 fields"),
        (b"--x\r\nContent-Disposition: form-data; name=a; filename=b\r\n\r\n\r\n" * 2 + b"--x--", "than 1 files"),
    ],
)
def test_a_damaged_form_is_refused_in_one_line(body: bytes, message: str) -> None:
    with pytest.raises(HttpError, match=message) as error:
        form(body)
    assert error.value.status == 400
