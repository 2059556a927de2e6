"""Decodes text files whose encoding a byte order mark or the file itself tells."""

import re

from transduce.errors import DataError


def decode_text(data: bytes, name: str, declared: "re.Pattern[bytes] | None" = None) -> tuple[str, str]:
    """The text of a file, and its encoding: that of the byte order mark, or declared by this pattern, or UTF-8."""
    encoding = "utf-8"
    if data.startswith(b"\xef\xbb\xbf"):
        encoding = "utf-8-sig"
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif declared and (found := declared.search(data, 0, 4096)):
        encoding = found[1].decode("ascii")
    try:
        text = data.decode(encoding)
    except LookupError:
        raise DataError(f"{name}: the encoding {encoding} is not known; convert the file to UTF-8") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(f"{name}, line {line}: not {encoding.upper()}; convert the file with iconv") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(f"{name}, line {line}: a NUL character; this is not a text file")
    return text, encoding
