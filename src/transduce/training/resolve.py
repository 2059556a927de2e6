"""From a recipe to a run that can begin: nothing is left to infer, prepare or measure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from transduce.config import require, to_table
from transduce.data.plan import Plan
from transduce.data.prepare import Prepared, prepare
from transduce.data.variation import Variation
from transduce.errors import DataError
from transduce.features import HOOKS
from transduce.files.readers import READERS
from transduce.models.folder import read_card
from transduce.models.model import Model
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair, load_tokenizer
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig
from transduce.training.display import Display
from transduce.training.initial_weights import new_model
from transduce.training.learner import use_bfloat16
from transduce.training.loader import Loader
from transduce.training.measured import TRIAL_TOKENS, faster_precision, hopeless_product, largest_batch
from transduce.training.processes import Processes, StopRequest
from transduce.training.recipe import Recipe
from transduce.training.run_folder import RunFolder
from transduce.training.start_from import find_start, kept_settings
from transduce.training.task import Task
from transduce.training.validation import Validation

_STREAM_NAMES = {"src": "source", "tgt": "target"}


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe whose settings are all known, with the text, the model and the batch plan that they were known from."""

    recipe: Recipe
    task: Task
    prepared: Prepared
    model: Model
    variation: Variation
    plan: Plan
    validation: Validation

    @property
    def tokenizer(self) -> AnyTokenizer:
        return self.prepared.tokenizer


def resolve(
    recipe: Recipe, run: RunFolder, display: Display, processes: Processes, stop: StopRequest
) -> ResolvedRecipe:
    """Infer languages, prepare the text, make the model, and measure the batch size and the precision if they are auto.

    All processes call it together.
    """
    log, device = display.log, processes.device(recipe.train.device)
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
    if recipe.train.precision == "fp8":
        _check_float8(device, recipe.train.shard)
    require_text(recipe)
    recipe = HOOKS["languages_of_run"](recipe, log, is_new=not run.config.exists())
    task = recipe.make_task()
    with processes.main_process_first():
        prepared = prepare(
            recipe.data,
            vocabulary_of(recipe, run, log),
            log,
            task.reader,
            task.symbols,
            check_valid=lambda examples: _check_scoring(recipe, task, examples, log),
            begun_with=run.corpus,
        )
    if READERS[task.reader].has_translations:
        HOOKS["warn_of_exchanged_sides"](recipe.data, prepared, log)
    task.set_tokenizer(prepared.tokenizer)
    recipe = _with_measured_sizes(recipe, task, prepared)
    model = new_model(recipe, task, run, prepared, device, processes, log)
    if recipe.train.batch_tokens == "auto":
        recipe = _with_batch_tokens(recipe, task, model, prepared, display, processes)
    config = recipe.train
    assert config.batch_tokens != "auto"
    variation = Variation(prepared.tokenizer, config.bpe_dropout, recipe.augment, task.reader, recipe.data.tgt_lang)
    growth, max_length = variation.growth(prepared.train), recipe.data.max_length
    plan = task.plan(prepared.train, config.batch_tokens, config.seed, growth=growth, max_length=max_length)
    validation = Validation(task, recipe, prepared, display, processes, stop)
    recipe = _with_precision(recipe, run, task, plan, variation, model, log, processes)
    return ResolvedRecipe(recipe, task, prepared, model, variation, plan, validation)


def require_text(recipe: Recipe) -> None:
    """Raise an error if training or validation text is missing; of a public corpus, it names the command to get it."""
    needed = [*recipe.data.all_train, *recipe.data.all_valid]
    for name in (name for files in needed for name in files if not Path(name).exists()):
        raise DataError(f"{name}: no such file{HOOKS['missing_text'](Path(name))}")


def vocabulary_of(recipe: Recipe, run: RunFolder, log: Callable[[str], None]) -> TokenizerConfig | AnyTokenizer:
    """The settings to train a tokenizer with; or the given one, or that of the model that training starts from."""
    start, path = recipe.train.start_from, recipe.tokenizer.path
    if not start and not path:
        return recipe.tokenizer
    if run.has_checkpoint:
        return load_tokenizer(run.path)
    if path:
        return foreign_vocabulary(Path(path), recipe.tokenizer.target_path)
    assert start
    folder = find_start(start)
    facts = read_card(folder)["facts"]
    kept = "".join(f", {setting}" for setting in kept_settings(recipe, facts))
    log(f"starting from {folder}, with its sizes and vocabulary (not those of the preset){kept}")
    tokenizer = load_tokenizer(folder)
    known = facts.get("tokenizer", {}).get("symbols", [])
    new = [symbol for symbol in recipe.tokenizer.symbols if symbol not in known]
    if isinstance(tokenizer, Tokenizer) or (isinstance(tokenizer, TokenizerPair) and tokenizer.is_trained):
        return tokenizer.with_symbols(new) if new else tokenizer
    require(not new, f"tokenizer.symbols: the vocabulary of {folder} was imported; symbols cannot be added to it")
    require(not recipe.train.bpe_dropout, f"train.bpe_dropout: the vocabulary of {folder} was imported")
    return tokenizer


def foreign_vocabulary(path: Path, target_path: str | None) -> AnyTokenizer:
    """The vocabulary of `tokenizer.path` and, if the target has its own, of `tokenizer.target_path`."""
    source = Tokenizer.load_foreign(path)
    return TokenizerPair(source, Tokenizer.load_foreign(Path(target_path))) if target_path else source


def _check_float8(device: torch.device, shard: bool) -> None:
    has_products = (
        device.type == "cuda"
        and torch.version.cuda
        and torch.cuda.get_device_capability(device) >= (8, 9)
        and find_spec("triton") is not None
    )
    require(
        bool(has_products),
        "train.precision=fp8 needs an NVIDIA GPU of compute capability 8.9 or higher (such as an H100), and Triton; "
        "train with train.precision=bfloat16 on other machines",
    )
    require(not shard, "train.precision=fp8 does not work with train.shard; set train.precision=bfloat16")


def _with_measured_sizes(recipe: Recipe, task: Task, prepared: Prepared) -> Recipe:
    """The recipe with the settings of the model that follow from the training data."""
    index = prepared.train.index
    chosen = getattr(recipe.model, "source_vocab_size", None)
    require(
        chosen is None or "source_vocab_size" in index,
        "model.source_vocab_size follows from the vocabularies: leave it out, and set tokenizer.separate=true",
    )
    settings = task.model_settings(index)
    recipe = replace(recipe, model=replace(recipe.model, **settings)) if settings else recipe
    refusal = task.refusal(recipe.model)
    require(refusal is None, refusal or "")
    return recipe


def _with_batch_tokens(
    recipe: Recipe, task: Task, model: Model, prepared: Prepared, display: Display, processes: Processes
) -> Recipe:
    """The recipe with `train.batch_tokens` set to the largest batch that fits in memory."""
    require(
        not (READERS[task.reader].arrays or READERS[task.reader].labels),
        f"train.batch_tokens = auto is not for the task {recipe.task}; give a number",
    )
    require(processes.count == 1, "train.batch_tokens = auto needs a single process; give a number for several")
    tokens = largest_batch(recipe, task, model, max(prepared.train.index["tokens"]))
    display.log(f"train.batch_tokens: {tokens:,} is the most that fits in memory")
    return replace(recipe, train=replace(recipe.train, batch_tokens=tokens))


def _with_precision(
    recipe: Recipe,
    run: RunFolder,
    task: Task,
    plan: Plan,
    variation: Variation,
    model: Model,
    log: Callable[[str], None],
    processes: Processes,
) -> Recipe:
    """The recipe with `train.precision` set to float32 or bfloat16, which a run keeps wherever it is resumed."""
    config, device = recipe.train, model.device
    if config.precision != "auto":
        if config.precision == "bfloat16" and device.type == "cpu" and (product := hopeless_product()):
            kept = "; a run keeps the precision that it was started with" if run.config.exists() else ""
            log(
                "warning: train.precision is bfloat16, and this CPU takes "
                f"{product[1].slowdown:,.0f} times as long for a product in bfloat16 as in float32{kept}"
            )
        return recipe
    half = use_bfloat16("auto", device)
    # A run that was started before precisions were measured has used float32 on a CPU.
    if device.type == "cpu" and not config.shard and not run.config.exists():
        if processes.is_main:
            split = -(-plan.batch_tokens // TRIAL_TOKENS)
            (batch, *_) = Loader(task, plan, variation, device, split=split).batch(0)
            chosen, measured = faster_precision(model, task, config, batch)
            log(f"precision: {chosen} ({measured})")
            half = chosen == "bfloat16"
        half = bool(processes.of_main(half))
    return replace(recipe, train=replace(config, precision="bfloat16" if half else "float32"))


def _check_scoring(recipe: Recipe, task: Task, examples: Sequence[tuple[Any, ...]], log: Callable[[str], None]) -> None:
    """Raise an error if the validation examples cannot be scored; log how they are scored and what is best."""
    for language in dict.fromkeys(part.target or recipe.data.tgt_lang for part in recipe.data.parts if part.valid):
        if description := task.check_scoring(recipe.train, language, examples):
            log(f"data: validation by {description}; the best checkpoint is selected by {recipe.train.criterion}")


def facts_of(recipe: Recipe, task: Task, prepared: Prepared) -> dict[str, Any]:
    """Metadata for model folders: how the model was made."""
    tokens, parts = zip(prepared.train.streams, prepared.train.index["tokens"], strict=True), recipe.data.parts
    old = [list(files) for part in parts if part.is_replay for files in part.train]
    index = prepared.train.index
    size = (
        {"documents": index["documents"]}
        if "documents" in index
        else {f"{index.get('noun', 'pair')}s": len(prepared.train)}
    )
    return {
        **({"task": recipe.task} if recipe.task != Recipe.task else {}),
        **({"directions": [list(pair) for pair in pairs]} if (pairs := recipe.data.language_pairs) else {}),
        "reverse": recipe.data.reverse,
        **({"tagged": True} if recipe.data.directions else {}),
        **task.facts(recipe.model),
        "max_length": recipe.data.max_length,
        "by_sentence": recipe.data.by_sentence,
        **{name: True for name in ("truecase", "source_tags") if getattr(recipe.data, name)},
        **({"context": recipe.data.context} if recipe.data.context else {}),
        "augment": to_table(recipe.augment),
        "search": to_table(recipe.search),
        "tokenizer": to_table(recipe.tokenizer),
        **({"start_from": recipe.train.start_from} if recipe.train.start_from else {}),
        "data": {
            "train": [list(files) for part in parts if not part.is_replay for files in part.all_train],
            **({"replay": old} if old else {}),
            **size,
            **{f"{_STREAM_NAMES.get(stream, stream)}_tokens": count for stream, count in tokens},
            f"valid_{next(iter(size))}": len(prepared.valid),
        },
    }
