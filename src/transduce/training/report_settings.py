"""Settings in the report: those that differ from the defaults first, the others folded."""

import dataclasses
from collections.abc import Iterator
from html import escape
from typing import Any

from transduce.config import to_table
from transduce.training.recipe import Recipe


def settings_of(recipe: Recipe) -> str:
    """The settings as HTML."""
    changed, defaults = [], []
    for name, values, default in _sections(recipe):
        own = {key: value for key, value in values.items() if value != default.get(key)}
        rest = {key: value for key, value in values.items() if key not in own}
        changed += [_card(name, own)] if own else []
        defaults += [_card(name, rest)] if rest else []
    summary = "<summary>Settings with their default values</summary>"
    folded = f'<details>{summary}<div class="settings">{"".join(defaults)}</div></details>' if defaults else ""
    return f'<h2>Settings</h2><div class="settings">{"".join(changed)}</div>{folded}'


def all_settings(recipe: Recipe) -> dict[str, str]:
    """The task and every setting, as "section.key" and text."""
    sections = {
        f"{name}.{key}": readable(value) for name, values, _ in _sections(recipe) for key, value in values.items()
    }
    return {"task": recipe.task, **sections}


def changed_settings(recipe: Recipe) -> dict[str, str]:
    """The settings that differ from the defaults, as "section.key" and text."""
    return {
        f"{name}.{key}": readable(value)
        for name, values, default in _sections(recipe)
        for key, value in values.items()
        if value != default.get(key)
    }


def readable(value: Any) -> str:
    """A value as text: lists without brackets, files of a pair joined by a plus sign."""
    if isinstance(value, tuple | list):
        return ", ".join(
            " + ".join(map(readable, one)) if isinstance(one, tuple | list) else readable(one) for one in value
        )
    if isinstance(value, dict):
        return ", ".join(f"{key} = {readable(one)}" for key, one in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)


def _sections(recipe: Recipe) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, values and default values of each section."""
    sections = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(recipe)}
    for name, config in (sections | dict(recipe.sections)).items():
        if dataclasses.is_dataclass(config):
            try:
                default = to_table(type(config)())  # type: ignore[misc]
            except Exception:  # a section without default values
                default = {}
            values = {key: value for key, value in to_table(config).items() if value != ()}
            yield name, values, default


def _card(name: str, values: dict[str, Any]) -> str:
    rows = "".join(f'<tr><td class="name">{escape(key)}<td>{escape(readable(value))}' for key, value in values.items())
    return f'<div class="card"><b>{escape(name)}</b><table>{rows}</table></div>'
