"""Checks of texts that a caller gives."""

from collections.abc import Iterable, Sized

from transduce.errors import DataError


def require_text(text: object, where: str) -> None:
    """Raise a DataError, which names `where` it is, unless this is a text that can be written as UTF-8."""
    if not isinstance(text, str):
        raise DataError(f"{where} is not a text, but of the type {type(text).__name__}")
    if not is_unicode(text):
        raise DataError(f"{where} is not valid Unicode: it contains a lone surrogate")


def require_texts(texts: Iterable[object], name: str) -> None:
    """Raise a DataError unless these are a list of texts; `name` is that of the argument."""
    require_list(texts, name)
    if not isinstance(texts, Sized):  # what can be read only once would be read here
        raise DataError(f"{name} must be a list of texts, not of the type {type(texts).__name__}")
    for index, text in enumerate(texts):
        require_text(text, f"{name}[{index}]")


def require_list(texts: object, name: str) -> None:
    """Raise a DataError if this is no list, or one text, whose characters would be taken for texts."""
    if isinstance(texts, str):
        raise DataError(f"{name} must be a list of texts; for a single text, give a list of one")
    if not isinstance(texts, Iterable):
        raise DataError(f"{name} must be a list of texts, not of the type {type(texts).__name__}")


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: a lone surrogate, as in the JSON "\\ud83d", cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
