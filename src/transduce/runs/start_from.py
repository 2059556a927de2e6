"""What a run takes over from the model that it starts from (`train.start_from`): sizes and vocabulary."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.config import Table, build, read_toml, require, to_table
from transduce.errors import ConfigError
from transduce.models.card import find_model, read_card
from transduce.models.registry import build_config
from transduce.text.tokenizer import TokenizerConfig

if TYPE_CHECKING:
    from transduce.runs.recipe import Recipe

BUNDLED = "bundled"
"""The value of `train.start_from` that means the bundled model."""


def find_start(name: str) -> Path:
    """The folder of the model that `train.start_from` names."""
    return find_model(None if name == BUNDLED else Path(name))


def inherited_settings(start_from: str, out: Path) -> Table:
    """The settings that a new run takes over from a model, or that the run in `out` took over when it was started.

    The latter need no model: it may have been deleted since.
    """
    if (out / "config.toml").exists():
        before = read_toml(out / "config.toml")
        if before.get("train", {}).get("start_from"):
            by_sentence = before.get("data", {}).get("by_sentence", False)
            return {"model": before["model"], "tokenizer": before["tokenizer"], "data": {"by_sentence": by_sentence}}
    folder = find_start(start_from)
    card = read_card(folder)
    config = build_config(card["architecture"], card["model"], str(folder))
    vocabulary = {"vocab_size": card["vocab_size"], **card["facts"].get("tokenizer", {})}
    return {
        "model": to_table(config),
        "tokenizer": to_table(build(TokenizerConfig, vocabulary, str(folder))),
        "data": {"by_sentence": bool(card["facts"].get("by_sentence"))},
    }


def require_inherited(recipe: "Recipe", given: Table, inherited: Table) -> None:
    """Raise an error if the user gave a size or a setting of the vocabulary that differs from the start model's."""
    start = recipe.train.start_from
    there = build_config(inherited["model"]["architecture"], inherited["model"], str(start)).sizes()
    here = recipe.model.sizes()
    different = [f"model.{name} (there {there.get(name)})" for name in here if there.get(name) != here[name]]
    require(not different, f"train.start_from: {start} has other sizes: {', '.join(different)}; leave them out")
    vocabulary = build(TokenizerConfig, inherited["tokenizer"], str(start))
    for name in _given(given, "tokenizer"):
        was, is_ = getattr(vocabulary, name), getattr(recipe.tokenizer, name)
        if was != is_:
            raise ConfigError(
                f"tokenizer.{name}={is_} has no effect beside train.start_from: the vocabulary is that of {start} "
                f"({name} {was}); leave it out"
            )


def _given(given: Table, section: str) -> dict[str, Any]:
    values = given.get(section, {})
    return values if isinstance(values, dict) else {}
