"""A recipe as a file to edit: the given settings, and further ones as comments, each with its meaning."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from transduce.config import Table, to_table, toml_value
from transduce.files.readers import READERS
from transduce.search.options import describe_bounds
from transduce.training.recipe import DEFAULT_PRESET, Recipe, default_run_folder, load_recipe
from transduce.training.task import TASKS

_SHOWN = {
    "data": ["train", "valid", "src_lang", "tgt_lang", "reverse", "max_length"],
    "tokenizer": ["vocab_size"],
    "model": ["dropout"],
    "train": [
        *("steps", "minutes", "patience", "batch_tokens", "warmup", "learning_rate", "cooldown", "seed"),
        *("log_every", "save_every", "valid_sentences", "average", "precision", "tensorboard"),
    ],
    "search": ["beam", "length_penalty"],
}
"""The settings that a recipe shows even if they are not given."""
_OF_PAIRS = {"data.src_lang", "data.tgt_lang", "data.reverse", "train.valid_sentences", "search"}
"""Those that have a meaning only for models from text to text."""
_EXAMPLES = {
    "valid": "valid.tsv",
    "minutes": 60.0,
    "patience": 10,
    "learning_rate": 0.0005,
    "src_lang": "en",
    "tgt_lang": "de",
}
"""Values to show for settings that have none by default."""
_PRESETS = (
    "Size of the model, and the training that suits it: tiny (minutes on a CPU), small (some ten thousand pairs, on a "
    "CPU or any GPU), base or big (the paper's models; millions of pairs, on a GPU)."
)
_WIDTH = 118


def recipe_text(path: Path, preset: str | None, style: str | None, settings: Table) -> tuple[str, Recipe]:
    """The text of a recipe at this path, and what it resolves to; a ConfigError if the settings are not valid."""
    recipe = load_recipe(None, preset, settings, [], default_run_folder(path), style)
    preset = preset or DEFAULT_PRESET
    lines = [
        *_comment(f"Train with: transduce train {path}"),
        *_comment("A setting that is commented out has the value that is shown, or none. docs/settings.md has all."),
        "",
        *_comment(f"What the model learns: {', '.join(TASKS)}."),
        f"task = {toml_value(recipe.task)}",
        "",
        *_comment(_PRESETS),
        f"preset = {toml_value(preset)}",
    ]
    if style:
        lines += ["", *_comment("Member of the family."), f"style = {toml_value(style)}"]
    table = to_table(recipe)
    pairs = READERS[recipe.make_task().reader].has_sides
    sections = {field.name: getattr(recipe, field.name) for field in fields(Recipe)}
    for section, config in (sections | dict(recipe.sections)).items():
        if section in ("task", "sections"):
            continue
        chosen = settings.get(section, {})
        others = [name for name in _SHOWN.get(section, []) if pairs or not _OF_PAIRS & {f"{section}.{name}", section}]
        if chosen or others:
            helps = help_texts(type(config))
            lines += [
                "",
                f"[{section}]",
                *_settings(list(dict.fromkeys([*chosen, *others])), chosen, table[section], helps),
            ]
    return "\n".join(lines) + "\n", recipe


def _settings(shown: list[str], chosen: Table, values: Table, helps: dict[str, str]) -> Iterator[str]:
    for name in shown:
        if name not in chosen and name not in values and name not in _EXAMPLES:
            continue
        yield from _comment(helps.get(name, ""))
        if name in chosen:
            yield f"{name} = {toml_value(chosen[name])}"
        elif values.get(name) not in (None, (), []):
            yield f"# {name} = {toml_value(values[name])}"
        else:
            yield f"# {name} = {toml_value(_EXAMPLES.get(name, []))}  # an example; not set"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def help_texts(section: type) -> dict[str, str]:
    """The help of each field of a dataclass: its metadata, or the docstring below the field."""
    result = {}
    for base in reversed(section.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                assert isinstance(field.target, ast.Name)
                result[field.target.id] = " ".join(str(text.value.value).split())
    for option in fields(section):
        if "help" in option.metadata:
            bounds = describe_bounds(option.metadata["bounds"])
            result[option.name] = option.metadata["help"] + (f" It must be {bounds}." if bounds else "")
    return result
