"""What a run takes over from the model that it starts from (`train.start_from`): sizes, vocabulary, some settings."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.config import Table, as_set, build, merge, read_toml, require, to_table
from transduce.data.data_config import DataConfig, DirectionConfig
from transduce.errors import ConfigError
from transduce.files.languages import direction_of_entry
from transduce.models.folder import find_model, read_card
from transduce.models.merged_weights import BUNDLED
from transduce.models.registry import build_config
from transduce.tokenizers.tokenizer import TokenizerConfig

if TYPE_CHECKING:
    from transduce.training.recipe import Recipe


_INHERITED_DATA = ("by_sentence", "truecase", "context", "source_tags")
"""Settings of the data that tell how a model's texts are translated."""
_INHERITED_AUGMENT = ("spans", "formality")
"""Changes that teach a model symbols, which it would forget in a training without them."""


def find_start(name: str) -> Path:
    """The folder of the model that `train.start_from` names."""
    return find_model(None if name == BUNDLED else Path(name))


def inherited_settings(start_from: str, out: Path) -> Table:
    """The settings that a new run takes over from a model, or that the run in `out` took over when it was started.

    The latter need no model: it may have been deleted since.
    """
    if before := _started(out):
        return {
            "model": before["model"],
            "tokenizer": before["tokenizer"],
            **_inherited_sections(before["data"], before),
        }
    folder = find_start(start_from)
    card = read_card(folder)
    config = build_config(card["architecture"], card["model"], str(folder))
    vocabulary: Table = {}  # an imported vocabulary was not made by these settings
    if "imported" not in card["facts"]:
        vocabulary = {"vocab_size": card["vocab_size"], **card["facts"].get("tokenizer", {})}
    if getattr(config, "source_vocab_size", None) is not None:
        vocabulary["separate"] = True
    for name in ("path", "target_path"):  # the files that its vocabularies came from
        vocabulary.pop(name, None)
    return {
        "model": to_table(config),
        "tokenizer": to_table(build(TokenizerConfig, vocabulary, str(folder))),
        **_inherited_sections(card["facts"], card["facts"]),
    }


def _inherited_sections(data: Table, settings: Table) -> Table:
    """The inherited settings of the sections [data] and [augment], from those of a model or a run."""
    augment = settings.get("augment", {})
    return {
        "data": {name: data.get(name, getattr(DataConfig, name)) for name in _INHERITED_DATA},
        "augment": {name: augment[name] for name in _INHERITED_AUGMENT if augment.get(name)},
    }


def kept_settings(recipe: "Recipe", facts: Table) -> list[str]:
    """The settings other than sizes and vocabulary in which a run agrees with the model that it starts from."""
    here = to_table(recipe)
    return [
        f"{section}.{name}={as_set(value)}"
        for section, values in _inherited_sections(facts, facts).items()
        for name, value in values.items()
        if value and here[section].get(name) == value
    ]


def with_directions(data: DataConfig, start_from: str, out: Path) -> DataConfig:
    """The text as that of one direction, if the model that the run in `out` starts from is multilingual."""
    before = _started(out)
    tagged = before["data"].get("directions") if before else read_card(find_start(start_from))["facts"].get("tagged")
    if not tagged or data.directions or not data.train:
        return data
    if not all(Path(name).exists() for files in data.train for name in files):  # the error that matters comes later
        return data
    named = {pair for files in data.train if (pair := direction_of_entry(files))}
    first, second = named.pop() if len(named) == 1 else (None, None)
    told = (second, first) if data.reverse else (first, second)
    source, target = data.src_lang or told[0], data.tgt_lang or told[1]
    require(
        bool(source and target),
        f"train.start_from: {start_from} is multilingual: name the languages of your text with data.src_lang and "
        "data.tgt_lang, or by file names like mine.en-de.tsv, or give data.directions",
    )
    only = DirectionConfig(
        train=data.train,
        valid=data.valid,
        replay=data.replay,
        reverse=data.reverse,
        back_translated=data.back_translated,
    )
    empty = DataConfig(**{name: getattr(data, name) for name in ("max_length", *_INHERITED_DATA)})
    return replace(empty, replay_share=data.replay_share, directions={f"{source}-{target}": only})


def require_inherited(recipe: "Recipe", settings: Table, inherited: Table) -> None:
    """Raise an error if the user gave a size or a setting of the vocabulary that differs from the start model's."""
    start = recipe.train.start_from
    there = build_config(inherited["model"]["architecture"], inherited["model"], str(start)).sizes()
    here = recipe.model.sizes()
    different = {name for name in here if there.get(name) != here[name]}
    others = [name for name in here if name in different - set(recipe.model.layer_counts)]
    named = ", ".join(f"model.{name} (there {as_set(there.get(name))})" for name in others)
    require(
        not named,
        f"train.start_from: {start} has other sizes: {named}; leave them out; only the numbers of layers may differ",
    )
    vocabulary = build(TokenizerConfig, inherited["tokenizer"], str(start))
    for name in _given(settings, "tokenizer").keys() - {"symbols"}:
        was, is_ = getattr(vocabulary, name), getattr(recipe.tokenizer, name)
        if was != is_:
            raise ConfigError(
                f"tokenizer.{name}={as_set(is_)} has no effect beside train.start_from: the vocabulary is that of "
                f"{start} ({name} {as_set(was)}); leave it out"
            )


def _started(out: Path) -> Table | None:
    """The settings of the run in a folder, if it has started from a model."""
    config = out / "config.toml"
    before = read_toml(config) if config.exists() else {}
    return before if before.get("train", {}).get("start_from") else None


def add_symbols(settings: Table, inherited: Table) -> Table:
    """The settings of the user, with the symbols of the start model before theirs."""
    symbols = _given(settings, "tokenizer").get("symbols", [])
    symbols = [symbols] if isinstance(symbols, str) else symbols
    if not isinstance(symbols, list | tuple) or not symbols:
        return settings
    known = list(inherited["tokenizer"].get("symbols", ()))
    return merge(settings, {"tokenizer": {"symbols": known + [symbol for symbol in symbols if symbol not in known]}})


def _given(settings: Table, section: str) -> dict[str, Any]:
    values = settings.get(section, {})
    return values if isinstance(values, dict) else {}
