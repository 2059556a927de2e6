"""The hierarchy of errors that a user can cause: each message tells what is wrong, where, and how to fix it."""


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
