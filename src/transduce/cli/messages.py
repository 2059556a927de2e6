"""Messages of commands on stderr."""

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from transduce.text.one_line import one_line

if TYPE_CHECKING:
    from transduce.translator import Translator


def log(line: str) -> None:
    """Print a line to stderr."""
    print(f"transduce: {one_line(line)}", file=sys.stderr)


def wrapped(line: str, indent: int = 0) -> str:
    """The line, broken between words if stdout is a terminal that is too narrow for it; a pipe gets it unchanged."""
    width = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or len(line) <= width or line.startswith("|"):  # a row of a table stays one line
        return line
    return textwrap.fill(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def describe_engine(translator: "Translator") -> str:
    """The engine that runs the translator's search and, if it is not the chosen one, the reason."""
    reason = translator.engine.supports(translator.any_model, translator.config)
    description = translator.engine_for(translator.config).description
    if translator.any_model.config.architecture == "ensemble":
        return f"{description}, because gpu and native have no ensembles"
    return f"{description}, because {translator.engine.name} has {reason}" if reason else description
