"""A recipe: all settings of a run, from a preset, a TOML file, flags and `--set`; each overrides the previous ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from transduce.config import Table, apply_sets, as_set, build, merge, read_toml, require, suggestion
from transduce.data.augment import AugmentConfig
from transduce.data.data_config import DataConfig
from transduce.errors import ConfigError
from transduce.files.readers import READERS
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.model import ModelConfig
from transduce.models.registry import config_class
from transduce.search.options import SearchConfig
from transduce.tokenizers.symbols import require_user_symbols
from transduce.tokenizers.tokenizer import TokenizerConfig
from transduce.training.start_from import add_symbols, inherited_settings, require_inherited, with_directions
from transduce.training.task import TASK_SETTINGS, TASKS, Task, settings_class
from transduce.training.train_config import ADAPTABLE, TrainConfig

DEFAULT_PRESET = "small"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a run."""

    task: str = "translate"
    """Name of the task, one of the table of features (features.py)."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=EncoderDecoderConfig, metadata={"variant": config_class})
    train: TrainConfig = field(default_factory=TrainConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    sections: Mapping[str, Any] = field(default_factory=dict, metadata={"sections": TASK_SETTINGS})
    """The settings of the task, if it has any, under its name; a section of another task must have no effect."""

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            hint = suggestion(self.task, list(TASKS))
            raise ConfigError(f"no task {self.task}{hint}; use {', '.join(TASKS)}")
        bpe = self.tokenizer.type == "bpe"
        require(bpe or not self.train.bpe_dropout, 'train.bpe_dropout needs tokenizer.type = "bpe"')
        require_user_symbols(self.tokenizer.symbols)
        others = {name: section for name, section in self.sections.items() if name != self.task}
        settings = settings_class(self.task)
        of_task = {self.task: self.sections.get(self.task, settings())} if settings else {}
        object.__setattr__(self, "sections", of_task)
        task = self.make_task()
        reader = READERS[task.reader]
        require(
            reader.has_translations or not self.augment.enabled,
            f"[augment] changes pairs of texts; the task {self.task} has none",
        )
        if not reader.has_sides:
            texts = ("by_sentence", "truecase", "context", "source_tags")
            of_sides = ("directions", "replay", "back_translated", "reverse", *texts)
            names = [f"data.{name}" for name in of_sides if getattr(self.data, name)]
            names += ["train.bpe_dropout"] if self.train.bpe_dropout else []
            require(not names, f"{', '.join(names)}: for pairs of texts; the task {self.task} has none")
        if self.tokenizer.has_two:
            require(task.translates, f"tokenizer.separate is for the task translate, not for {self.task}")
            require(
                self.model.architecture == "encoder_decoder",
                f"tokenizer.separate: the architecture {self.model.architecture} has one embedding matrix for source, "
                "target and output; use model.architecture=encoder_decoder, or one vocabulary",
            )
        if not task.always_samples:
            self.search.require_sampling_for(
                option.name for option in fields(self.search) if getattr(self.search, option.name) != option.default
            )
        for name, section in others.items():
            require(section == type(section)(), f"[{name}] has no effect on the task {self.task}; leave it out")
        refusal = task.refusal(self.model)
        require(refusal is None, refusal or "")
        can_validate = bool(self.data.all_valid) or not self.train.patience
        require(can_validate, "train.patience counts validations: give validation text with --valid")

    @property
    def task_settings(self) -> Any:
        """The settings of the task; None if it has none."""
        return self.sections.get(self.task)

    def make_task(self) -> Task:
        return TASKS[self.task].of(self)


_BESIDE_PATH = {"path", "target_path", "separate", "type"}
"""Settings of the vocabulary that have an effect beside tokenizer.path."""


def load_recipe(
    path: Path | None,
    preset: str | None,
    flags: Table,
    sets: list[str],
    out: Path | None = None,
    style: str | None = None,
) -> Recipe:
    """The recipe of a preset, a style, a file, flags and assignments; each overrides the previous ones.

    For a run in `out` that starts from a model, sizes and vocabulary of that model replace those of the preset.
    """
    table = read_toml(path) if path else {}
    base = read_preset(preset or table.pop("preset", DEFAULT_PRESET))
    style = style or table.pop("style", None)
    for name in ("preset", "style"):
        table.pop(name, None)
    changes = apply_sets(merge(table, flags), sets)
    task = TASKS.get(str(changes["task"])) if "task" in changes else None
    defaults = merge(task.defaults if task else {}, read_style(style) if style else {})
    architecture = merge(defaults, changes).get("model", {}).get("architecture", ModelConfig.architecture)
    if architecture != base["model"].get("architecture", ModelConfig.architecture):
        base["model"] = _sizes_for(architecture, base["model"])
    base = merge(merge(base, defaults), {"model": {"architecture": architecture}})
    start = changes["train"].get("start_from") if isinstance(changes.get("train"), dict) else None
    inherited = inherited_settings(start, out) if out and isinstance(start, str) else {}
    if inherited:
        there = inherited["model"]["architecture"]
        named = changes.get("model", {}).get("architecture", there)
        require(named == there, f"train.start_from: {start} has the architecture {there}, not {named}")
        of_style = read_style(style).get("model", {}) if style else {}
        other = [name for name, value in of_style.items() if inherited["model"].get(name, value) != value]
        different = ", ".join(f"model.{name} (there {as_set(inherited['model'][name])})" for name in other)
        require(not other, f"train.start_from: {start} is not of the style {style}: {different}; leave the style out")
        reader = READERS[(task or Task).reader]
        others = [*([] if reader.has_sides else ["data"]), *([] if reader.has_translations else ["augment"])]
        base = merge({**base, "model": {}}, {name: inherited[name] for name in inherited if name not in others})
        changes = add_symbols(changes, inherited)
    of_task = {"task": changes["task"]} if "task" in changes else {}
    # Errors in the file name the file, others the settings.
    build(Recipe, merge(base, {**table, **of_task}), str(path or preset or "settings"))
    recipe = build(Recipe, merge(base, changes), "settings")
    of_train = changes.get("train", {})
    if (recipe.train.minutes or recipe.train.patience) and "adapts" not in of_train:
        adapts = tuple(name for name in ADAPTABLE if name not in of_train)
        recipe = replace(recipe, train=replace(recipe.train, adapts=adapts))
    without_effect = changes.get("tokenizer", {}).keys() - _BESIDE_PATH if recipe.tokenizer.path else set()
    if without_effect:
        raise ConfigError(f"tokenizer.{min(without_effect)} has no effect beside tokenizer.path; leave it out")
    if inherited and out and recipe.train.start_from:
        require_inherited(recipe, changes, inherited)
        recipe = replace(recipe, data=with_directions(recipe.data, recipe.train.start_from, out))
    return recipe


def default_run_folder(recipe: Path) -> Path:
    """The folder of the run of a recipe, unless another one is given."""
    return Path("runs") / recipe.stem


def read_preset(name: str) -> Table:
    """The settings of a preset: sizes of a model and how to train it."""
    return _read_included("preset", name)


def read_style(name: str) -> Table:
    """The settings of a style: what a member of the family changes of the paper's model."""
    return _read_included("style", name)


def _sizes_for(architecture: str, preset: Table) -> Table:
    """The sizes of a preset for another architecture, as far as it has them."""
    names = {field.name for field in fields(config_class({"architecture": architecture}))}
    return {name: value for name, value in {**preset, "layers": preset.get("decoder_layers")}.items() if name in names}


def _read_included(kind: str, name: str) -> Table:
    folder = resources.files("transduce") / f"{kind}s"
    names = sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    if not isinstance(name, str) or name not in names:
        raise ConfigError(f"no {kind} {name}{suggestion(str(name), names)}; use {', '.join(names)}")
    with resources.as_file(folder / f"{name}.toml") as path:
        return read_toml(path)
