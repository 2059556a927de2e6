"""A recipe: all settings of a run, from a preset, a TOML file, flags and `--set`; each overrides the previous ones."""

import math
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Literal

from transduce.classification.task import ClassifyConfig
from transduce.config import MAX_THREADS, Table, apply_sets, as_set, build, merge, read_toml, require, suggestion
from transduce.data.augment import AugmentConfig
from transduce.data.data_config import DataConfig
from transduce.encoders.denoise import DenoiseConfig
from transduce.encoders.masked import MaskedConfig
from transduce.errors import ConfigError
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.model import ModelConfig
from transduce.models.registry import config_class
from transduce.search.options import SearchConfig
from transduce.speech.task import TranscribeConfig
from transduce.tokenizers.symbols import require_user_symbols
from transduce.tokenizers.tokenizer import TokenizerConfig
from transduce.training.start_from import add_symbols, inherited_settings, require_inherited, with_directions
from transduce.training.task import Task
from transduce.training.task_registry import TASKS
from transduce.translation.bleu_tokenizer import BleuTokenizer

DEFAULT_PRESET = "small"


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Training (section 5): schedule, optimizer, regularisation, checkpoints."""

    steps: int = 100_000
    """Number of updates of the weights."""
    minutes: float | None = None
    """End the run after this much training time, if that is before `steps`; validation and saving do not count."""
    patience: int | None = None
    """End the run after this many validations in a row without a better score; a cooldown then begins first."""
    batch_tokens: int | Literal["auto"] = 25_000
    """Upper bound on the source tokens and the target tokens of a batch; auto is the most that fits in GPU memory. Of
    images, pixels are counted, and of recordings samples."""
    accumulate: int = 1
    """Gradient accumulation: number of batches per update."""
    warmup: int = 4000
    """Number of steps in which the learning rate rises (warmup_steps)."""
    learning_rate: float | None = None
    """Highest learning rate, reached after warmup; if not given, it follows from width and warmup as in the paper."""
    learning_rate_scale: float = 1.0
    """Factor on the learning rate of the paper's schedule, which depends on step and width."""
    schedule: Literal["paper", "cosine"] = "paper"
    """Learning rate after warmup: falls with the inverse root of the step, as in the paper, or as half a cosine until
    the last step (train.steps)."""
    final_learning_rate: float = 0.0
    """Learning rate of the last step, with the schedule cosine."""
    weight_decay: float = 0.0
    """Weight decay of all matrices, decoupled from the gradients (AdamW); 0 is the paper's Adam."""
    cooldown: int = 0
    """Number of last steps in which the learning rate decays linearly to zero; 0 keeps the paper's schedule."""
    beta1: float = 0.9
    """Adam's beta1: decay of the first moment."""
    beta2: float = 0.98
    """Adam's beta2: decay of the second moment."""
    epsilon: float = 1e-9
    """Adam's epsilon, added to the root of the second moment."""
    label_smoothing: float = 0.1
    """epsilon_ls: probability mass spread evenly over the vocabulary."""
    clip_norm: float = 0.0
    """Gradient clipping: largest norm of the gradients; 0 disables it, as in the paper."""
    r_drop: float = 0.0
    """Weight of the R-Drop loss between two passes with different dropout; 0 disables it (its paper: 5)."""
    bpe_dropout: float = 0.0
    """BPE-dropout: probability that a merge of the tokenizer is skipped, drawn anew in every epoch."""
    seed: int = 1
    """Random seed of initial weights, dropout and the order of batches."""
    start_from: str | None = None
    """Fine-tuning: run or model folder, or "bundled", whose weights, sizes and vocabulary training starts from; the
    model may have fewer layers."""
    start_share: float = 0.0
    """Fine-tuning: share of the weights before training in the finished model; with 0.5, the mean of before and after,
    it forgets little."""
    log_every: int = 50
    """Number of steps between lines of metrics."""
    valid_sentences: int = 500
    """Number of pairs of each validation file, from the first on, that are translated for BLEU; the loss uses all."""
    criterion: Literal["bleu", "chrf", "loss"] = "bleu"
    """What selects the best checkpoint: the highest BLEU or chrF, or the lowest loss; without a score, the loss."""
    bleu_tokenizer: BleuTokenizer = "auto"
    """Tokenizer of BLEU, one of sacreBLEU's; auto selects it by data.tgt_lang or by the script of the references."""
    samples: int = 5
    """Number of those translations that the report shows; 0 keeps validation text out of the run's folder."""
    save_every: int = 1000
    """Number of steps between checkpoints, each of which is validated."""
    keep: int = 5
    """Number of last checkpoints to keep; the best one is kept as well."""
    average: int = 5
    """Checkpoint averaging: the finished model is the mean of this many last checkpoints (section 6.1)."""
    tensorboard: bool = False
    """Write all metrics for TensorBoard too, to the folder tensorboard of the run."""
    wandb: str | None = None
    """Project of Weights & Biases that receives all metrics too; WANDB_MODE=offline keeps them in the run's folder."""
    shard: bool = False
    """Shard the model over the processes of torchrun (FSDP2), if it does not fit on one GPU."""
    device: str = "auto"
    """Device: auto (a GPU if there is one), cpu, cuda, cuda:1 ..."""
    threads: int | None = None
    """Number of CPU threads (default: OMP_NUM_THREADS or the number of cores). It affects the last digits of sums."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; auto is bfloat16 on GPUs that support it, and on a CPU the faster one, which is
    measured when the run starts. Weights and Adam's moments are always float32."""

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "warmup", "log_every", "save_every"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.batch_tokens == "auto" or self.batch_tokens >= 1, "batch_tokens must be at least 1, or auto")
        require(self.keep >= 1, "keep must be at least 1")
        require(1 <= self.average <= self.keep, "average must be at least 1 and at most keep")
        for name in ("patience", "threads"):
            require(getattr(self, name) is None or getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.threads is None or self.threads <= MAX_THREADS, f"threads must be at most {MAX_THREADS}")
        require(self.device != "meta", "the device meta computes nothing; use auto, cpu, cuda, cuda:1 ...")
        require(self.wandb != "", "wandb must be the name of a project")
        require(self.minutes is None or self.minutes > 0, "minutes must be above 0")
        for name in ("cooldown", "valid_sentences", "samples"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0")
        for name in ("label_smoothing", "bpe_dropout", "beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1")
        for name in ("learning_rate_scale", "epsilon"):
            require(getattr(self, name) > 0, f"{name} must be above 0")
        require(self.learning_rate is None or self.learning_rate > 0, "learning_rate must be above 0")
        require(0 <= self.start_share < 1, "start_share must be at least 0 and below 1")
        require(not self.start_share or self.start_from is not None, "start_share needs start_from")
        require(
            self.learning_rate is None or self.learning_rate_scale == 1.0,
            "learning_rate and learning_rate_scale exclude each other; give one of them",
        )
        for name in ("clip_norm", "r_drop", "final_learning_rate", "weight_decay"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0")
        for name in ("epsilon", "r_drop", "final_learning_rate", "weight_decay"):
            require(math.isfinite(getattr(self, name)), f"{name} must be finite")
        cosine = self.schedule == "cosine"
        require(cosine or not self.final_learning_rate, "final_learning_rate needs schedule = cosine")
        require(not cosine or not self.cooldown, "cooldown needs schedule = paper; a cosine falls by itself")
        require(0 <= self.seed < 2**31, "seed must be at least 0 and below 2^31")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a run."""

    task: str = "translate"
    """Name of the task in the table of tasks (training/task_registry.py)."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=EncoderDecoderConfig, metadata={"variant": config_class})
    train: TrainConfig = field(default_factory=TrainConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    masked: MaskedConfig = field(default_factory=MaskedConfig)
    denoise: DenoiseConfig = field(default_factory=DenoiseConfig)
    classify: ClassifyConfig = field(default_factory=ClassifyConfig)
    transcribe: TranscribeConfig = field(default_factory=TranscribeConfig)

    def __post_init__(self) -> None:
        require(self.task in TASKS, f"no task {self.task}{suggestion(self.task, list(TASKS))}; use {', '.join(TASKS)}")
        bpe = self.tokenizer.type == "bpe"
        require(bpe or not self.train.bpe_dropout, 'train.bpe_dropout needs tokenizer.type = "bpe"')
        require_user_symbols(self.tokenizer.symbols)
        task = self.make_task()
        pairs = task.reader == "pairs"
        require(pairs or not self.augment.enabled, f"[augment] changes pairs of texts; the task {self.task} has none")
        if task.reader not in ("pairs", "trees"):
            own = ("directions", "replay", "back_translated", "reverse", "by_sentence", "truecase")
            names = [f"data.{name}" for name in own if getattr(self.data, name)]
            names += ["train.bpe_dropout"] if self.train.bpe_dropout else []
            require(not names, f"{', '.join(names)}: for pairs of texts; the task {self.task} has none")
        if self.tokenizer.has_two:
            require(self.task == "translate", f"tokenizer.separate is for the task translate, not for {self.task}")
            require(
                self.model.architecture == "encoder_decoder",
                f"tokenizer.separate: the architecture {self.model.architecture} has one embedding matrix for source, "
                "target and output; use model.architecture=encoder_decoder, or one vocabulary",
            )
        if self.task != "language_model":  # of which every output is sampled
            self.search.require_sampling_for(
                option.name for option in fields(self.search) if getattr(self.search, option.name) != option.default
            )
        for section in fields(self):
            if section.name in TASKS and section.name != self.task and section.default_factory is not MISSING:
                unchanged = getattr(self, section.name) == section.default_factory()
                require(unchanged, f"[{section.name}] has no effect on the task {self.task}; leave it out")
        refusal = task.refusal(self.model)
        require(refusal is None, refusal or "")
        can_validate = bool(self.data.all_valid) or not self.train.patience
        require(can_validate, "train.patience counts validations: give validation text with --valid")

    def make_task(self) -> Task:
        """The task with its settings."""
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
    given = apply_sets(merge(table, flags), sets)
    task = TASKS.get(str(given.get("task")))
    defaults = merge(task.defaults if task else {}, read_style(style) if style else {})
    architecture = merge(defaults, given).get("model", {}).get("architecture", ModelConfig.architecture)
    if architecture != base["model"].get("architecture", ModelConfig.architecture):
        base["model"] = _sizes_for(architecture, base["model"])
    base = merge(merge(base, defaults), {"model": {"architecture": architecture}})
    start = given["train"].get("start_from") if isinstance(given.get("train"), dict) else None
    inherited = inherited_settings(start, out) if out and isinstance(start, str) else {}
    if inherited:
        there = inherited["model"]["architecture"]
        named = given.get("model", {}).get("architecture", there)
        require(named == there, f"train.start_from: {start} has the architecture {there}, not {named}")
        of_style = read_style(style).get("model", {}) if style else {}
        other = [name for name, value in of_style.items() if inherited["model"].get(name, value) != value]
        different = ", ".join(f"model.{name} (there {as_set(inherited['model'][name])})" for name in other)
        require(not other, f"train.start_from: {start} is not of the style {style}: {different}; leave the style out")
        base = merge({**base, "model": {}}, inherited)
        given = add_symbols(given, inherited)
    of_task = {"task": given["task"]} if "task" in given else {}
    # Errors in the file name the file, others the settings.
    build(Recipe, merge(base, {**table, **of_task}), str(path or preset or "settings"))
    recipe = build(Recipe, merge(base, given), "settings")
    without_effect = given.get("tokenizer", {}).keys() - _BESIDE_PATH if recipe.tokenizer.path else set()
    if without_effect:
        raise ConfigError(f"tokenizer.{min(without_effect)} has no effect beside tokenizer.path; leave it out")
    if inherited and out and recipe.train.start_from:
        require_inherited(recipe, given, inherited)
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
