"""Generates docs/settings.md from the dataclasses of the settings: `make settings`."""

import dataclasses
import inspect
from pathlib import Path

from transduce.data.data_config import DirectionConfig
from transduce.init.recipe_template import help_texts
from transduce.models.model import ModelConfig
from transduce.models.registry import MODEL_SETTINGS
from transduce.training.recipe import Recipe, read_preset
from transduce.training.task import TASK_SETTINGS

PAGE = Path(__file__).with_suffix(".md")
PRESETS = ("tiny", "small", "base", "big")
HEAD = """# All settings

Generated from the code by `make settings`.

A recipe is a TOML file with these sections; `preset = "base"` at its top starts from a preset. On the command line a
setting is `--set train.steps=2000`, in Python `train(..., settings={"train.steps": 2000})`. The `config.toml` of a run
has all its settings. Those of `[search]` become the defaults of the finished model.
"""


def page() -> str:
    """The content of settings.md."""
    presets = {name: read_preset(name) for name in PRESETS}
    lines = [HEAD, *_table("", Recipe, {})]
    sections = {field.name: field.default_factory for field in dataclasses.fields(Recipe)}
    for section, kind in (sections | dict(TASK_SETTINGS)).items():
        if dataclasses.is_dataclass(kind):
            preset_values = {name: tables.get(section, {}) for name, tables in presets.items()}
            lines += [f"## {section}", "", f"{inspect.getdoc(kind)}", "", *_table(f"{section}.", kind, preset_values)]
    for name, kind in MODEL_SETTINGS.items():
        if name != ModelConfig.architecture:
            lines += [
                f"## model, if architecture is {name}",
                "",
                f"{inspect.getdoc(kind)}",
                "",
                *_table("model.", kind, {}),
            ]
    lines += ["## data.directions", "", f"{inspect.getdoc(DirectionConfig)}", ""]
    lines += _table("data.directions.SOURCE-TARGET.", DirectionConfig, {})
    return "\n".join(lines)


def _table(prefix: str, kind: type, presets: dict[str, dict[str, object]]) -> list[str]:
    """The settings of a dataclass that are not sections, with the values that the presets give them."""
    texts, lines = help_texts(kind), ["| setting | default | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.default_factory) or "sections" in field.metadata:
            continue
        values = {name: settings.get(field.name) for name, settings in presets.items()}
        others = ", ".join(f"{name} {value}" for name, value in values.items() if value not in (None, field.default))
        default = "" if field.default in (None, (), dataclasses.MISSING) else str(field.default)
        default += f"; {others}" if others else ""
        lines.append(f"| `{prefix}{field.name}` | {default} | {texts[field.name]} |")
    return [*lines, ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
