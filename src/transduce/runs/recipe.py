"""A recipe: every setting of a run. A preset gives the sizes, a TOML file, flags and `--set` lay theirs over it."""

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from transduce.config import Table, apply_sets, build, merge, read_toml, require, suggestion, to_table
from transduce.data.prepare import DataConfig
from transduce.errors import ConfigError
from transduce.models.encoder_decoder import ModelConfig
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import TokenizerConfig

DEFAULT_PRESET = "small"


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Section 5 of the paper, and what it leaves open."""

    steps: int = 100_000
    """Updates of the weights."""
    batch_tokens: int | Literal["auto"] = 25_000
    """Source tokens, and target tokens, of one batch at most; auto is the most that fits the GPU's memory."""
    accumulate: int = 1
    """Batches whose gradients are added up for one update."""
    warmup: int = 4000
    """Steps in which the learning rate rises."""
    learning_rate_scale: float = 1.0
    """Factor on the paper's schedule, which sets the rate itself by step and width."""
    cooldown: int = 0
    """Last steps (at most all), in which the learning rate falls to nothing; 0 ends on the paper's schedule."""
    beta1: float = 0.9
    """Adam's."""
    beta2: float = 0.98
    """Adam's."""
    epsilon: float = 1e-9
    """Adam's."""
    label_smoothing: float = 0.1
    """epsilon_ls, spread evenly over the vocabulary."""
    clip_norm: float = 0.0
    """Scale gradients down to this norm; 0 leaves them alone, as the paper does."""
    r_drop: float = 0.0
    """Weight of R-Drop: each batch is passed twice under different dropout, and the two should agree (its paper: 5)."""
    bpe_dropout: float = 0.0
    """Chance that a merge of the tokeniser is skipped, drawn anew each time a pair is seen."""
    seed: int = 1
    """Of weights, dropout and the order of batches."""
    start_from: str | None = None
    """A run or model folder whose weights and vocabulary training starts from (fine-tuning); the sizes must agree."""
    log_every: int = 50
    """Steps between lines of metrics."""
    valid_sentences: int = 500
    """Validation pairs translated for BLEU, from the first on; 0 for none. The loss takes all but the overlong."""
    samples: int = 5
    """Translations among them that the report shows; 0 keeps the text of the validation set out of the run's folder."""
    save_every: int = 1000
    """Steps between checkpoints; each is validated first."""
    keep: int = 5
    """Checkpoints kept: so many of the last, and the best."""
    average: int = 5
    """The finished model is the mean of so many last checkpoints (section 6.1)."""
    shard: bool = False
    """Spread the model over the processes (FSDP2): for one that a single GPU does not hold. Started by torchrun."""
    device: str = "auto"
    """Where to compute: auto (a GPU where there is one), cpu, cuda, cuda:1 ..."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; auto is bfloat16 on a GPU that has it. Weights are float32 always."""

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "warmup", "log_every", "save_every"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.batch_tokens == "auto" or self.batch_tokens >= 1, "batch_tokens must be at least 1, or auto")
        require(self.keep >= 1, "keep must be at least 1")
        require(1 <= self.average <= self.keep, "average must be at least 1 and at most keep")
        for name in ("cooldown", "valid_sentences", "samples"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0")
        for name in ("label_smoothing", "bpe_dropout", "beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1")
        for name in ("learning_rate_scale", "epsilon"):
            require(getattr(self, name) > 0, f"{name} must be above 0")
        for name in ("clip_norm", "r_drop"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0")
        require(0 <= self.seed < 2**31, "seed must be at least 0 and below 2^31")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides what a run becomes."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        bpe = self.tokenizer.type == "bpe"
        require(bpe or not self.train.bpe_dropout, 'train.bpe_dropout needs tokenizer.type = "bpe"')


# Settings that may change when a run is resumed: they decide what is shown and kept, and how long is learnt, not how.
# Training text may move to other files, of which a run knows the content.
FREE_TO_CHANGE = {
    *("train.steps", "train.log_every", "train.valid_sentences", "train.samples", "train.save_every", "train.keep"),
    *("train.average", "train.shard", "train.device", "train.cooldown", "data.train", "data.valid"),
    *("data.by_sentence", "search"),
}


def load_recipe(path: Path | None, preset: str | None, flags: Table, sets: list[str]) -> Recipe:
    """The recipe of a preset, a file, flags and assignments, each laid over the ones before."""
    table = read_toml(path) if path else {}
    named = table.pop("preset", DEFAULT_PRESET)
    base = merge(read_preset(preset or named), table)
    build(Recipe, base, str(path or preset))  # mistakes in the file are told by its name, those in the flags by theirs
    return build(Recipe, apply_sets(merge(base, flags), sets), "settings")


def read_preset(name: str) -> Table:
    """The tables of a preset."""
    folder = resources.files("transduce") / "presets"
    names = sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    if not isinstance(name, str) or name not in names:
        raise ConfigError(f"no preset {name}{suggestion(str(name), names)}; there are {', '.join(names)}")
    with resources.as_file(folder / f"{name}.toml") as path:
        return read_toml(path)


def differences(old: Recipe, new: Recipe) -> list[str]:
    """Settings that keep a run from going on, as "section.key (there ..., here ...)"."""
    old_table, new_table = to_table(old), to_table(new)
    found = []
    for section, values in new_table.items():
        before: dict[str, Any] = old_table[section]
        for key in sorted(values.keys() | before.keys()):
            free = f"{section}.{key}" in FREE_TO_CHANGE or section in FREE_TO_CHANGE
            moved = key == "start_from" and key in values and key in before  # the model that it starts from
            if values.get(key) != before.get(key) and not (free or moved):
                found.append(f"{section}.{key} (there {before.get(key)}, here {values.get(key)})")
    return found
