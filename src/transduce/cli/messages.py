"""Messages of commands on stderr."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transduce.translator import Translator


def log(line: str) -> None:
    """Print a line to stderr."""
    print(f"transduce: {line}", file=sys.stderr)


def describe_engine(translator: "Translator") -> str:
    """The engine that runs the translator's search and, if it is not the chosen one, the reason."""
    from transduce.models.ensemble import Ensemble

    reason = translator.engine.supports(translator.model, translator.config)
    description = translator.engine_for(translator.config).description
    if isinstance(translator.model, Ensemble):
        return f"{description}, because gpu and native have no ensembles"
    return f"{description}, because {translator.engine.name} has {reason}" if reason else description
