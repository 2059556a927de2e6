"""Writes docs/settings.md from the dataclasses that hold the settings: `make settings`."""

import ast
import dataclasses
import inspect
import textwrap
from pathlib import Path

from transduce.runs.recipe import Recipe, read_preset
from transduce.search.options import describe_bounds

PAGE = Path(__file__).with_suffix(".md")
PRESETS = ("tiny", "small", "base", "big")
HEAD = """# All settings

Written by `make settings` from the code.

A recipe is a TOML file with these sections; `preset = "base"` at its top lays it over a preset. On the command line a
setting is `--set train.steps=2000`, in Python `train(..., settings={"train.steps": 2000})`. A run's `config.toml` has
them all, as they were. Those of `[search]` become the defaults of the finished model.
"""


def help_texts(section: type) -> dict[str, str]:
    """The help of each field of a dataclass: its metadata, or the text below the field."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(tree, ast.ClassDef)
    result = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            result[field.target.id] = str(text.value.value)
    for option in dataclasses.fields(section):
        if option.metadata:
            bounds = describe_bounds(option.metadata["bounds"])
            result[option.name] = option.metadata["help"] + (f" It must be {bounds}." if bounds else "")
    return result


def page() -> str:
    """The complete page."""
    presets = {name: read_preset(name) for name in PRESETS}
    lines = [HEAD]
    for section in dataclasses.fields(Recipe):
        kind = section.default_factory
        assert isinstance(kind, type)
        texts = help_texts(kind)
        lines += [f"## {section.name}", "", f"{inspect.getdoc(kind)}", "", "| setting | default | |", "|---|---|---|"]
        for field in dataclasses.fields(kind):
            given = {name: tables.get(section.name, {}).get(field.name) for name, tables in presets.items()}
            others = ", ".join(f"{name} {value}" for name, value in given.items() if value not in (None, field.default))
            default = "" if field.default in (None, ()) else str(field.default)
            default += f"; {others}" if others else ""
            lines.append(f"| `{section.name}.{field.name}` | {default} | {texts[field.name]} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
