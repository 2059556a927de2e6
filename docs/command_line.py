"""Generates the command line reference from the Typer app; `conf.py` appends it to command-line.md."""

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

from typer.main import get_command

from transduce.cli.main import app


def commands(command: Any = None, name: str = "transduce") -> Iterator[tuple[str, Any]]:
    """Every command with its full name, those of groups included."""
    command = command or get_command(app)
    if not hasattr(command, "commands"):
        yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{name} {word}")


def reference() -> str:
    """One section for each command: usage, description, and a table of arguments and options."""
    sections = []
    for name, command in commands():
        context = command.context_class(command, info_name=name)
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        rows = ["| option | meaning |", "|---|---|"]
        for option, text in filter(None, (parameter.get_help_record(context) for parameter in command.params)):
            option, text = option.replace("|", r"\|"), text.replace("|", r"\|").replace("<", "&lt;")
            rows.append(f"| `{option}` | {text} |")
        table = "\n".join(rows)
        sections.append(f"\n## {name}\n\n```\n{usage}\n```\n\n{cleandoc(command.help)}\n\n{table}\n")
    return "".join(sections)
