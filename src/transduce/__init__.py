"""transduce: train your own translator, the Transformer of "Attention Is All You Need" made into software."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.errors import TransduceError
    from transduce.evaluation.scores import compare, score
    from transduce.training.api import train
    from transduce.translator import Translation, Translator

__version__ = "0.1.0"
__all__ = ["TransduceError", "Translation", "Translator", "compare", "score", "train"]

_HOMES = {
    "Translation": "transduce.translator",
    "Translator": "transduce.translator",
    "TransduceError": "transduce.errors",
    "compare": "transduce.evaluation.scores",
    "score": "transduce.evaluation.scores",
    "train": "transduce.training.api",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: `transduce --help` must not wait seconds for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
