"""The version of the package, also where it runs from a source tree that is not installed."""

__version__ = "0.1.0"
