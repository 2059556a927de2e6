"""The tree of errors a user may meet: each message says what is wrong, where, and how to mend it."""


class TransduceError(Exception):
    """Something the user can mend; the command line prints it as one line and exits with 2."""


class ConfigError(TransduceError):
    """A setting is unknown, of the wrong kind, or out of range."""


class DataError(TransduceError):
    """A text file, or the token shards made from it, cannot be used as they are."""


class ModelError(TransduceError):
    """A model folder is missing, incomplete or does not fit its weights."""


class RunError(TransduceError):
    """A training run cannot start or go on in the folder it was given."""
