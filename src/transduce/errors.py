"""The hierarchy of errors that a user can cause: each message tells what is wrong, where, and how to fix it."""

from collections.abc import Iterator
from contextlib import contextmanager


class TransduceError(Exception):
    """Base class of errors that the user can fix; the command line prints the message and exits with code 2."""


class ConfigError(TransduceError):
    """A setting is unknown, has the wrong type, or is out of range."""


class DataError(TransduceError):
    """A text file or a prepared corpus is missing, damaged or has an unusable format."""


class ModelError(TransduceError):
    """A model folder is missing, incomplete, or inconsistent with its weights."""


class RunError(TransduceError):
    """A training run cannot start or resume in its folder."""


class MissingPackageError(TransduceError, ImportError):
    """A package that is not part of every installation is needed, but not installed."""


TRAINING_PACKAGES = ("torch", "sacrebleu", "numpy", "safetensors")
"""What `pip install 'transduce[train]'` installs besides the packages of every installation."""


@contextmanager
def needs_torch(what: str = "this") -> Iterator[None]:
    """Turn the error about a missing training package into one line that says what needs it and how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in TRAINING_PACKAGES:
            raise
        raise MissingPackageError(
            f"{what} needs {package}, which is not installed: pip install 'transduce[train]'"
        ) from None
