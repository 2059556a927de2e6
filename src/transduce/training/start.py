"""The start of a run: its vocabulary, settings that are measured, and the checkpoint it resumes from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transduce.config import require, to_table
from transduce.corpora.get.catalogue import corpus_names
from transduce.data.data_config import DataConfig
from transduce.data.plan import Plan
from transduce.data.prepare import Prepared
from transduce.data.variation import Variation
from transduce.errors import DataError, RunError
from transduce.files.languages import direction_of_entry, parse_direction
from transduce.files.pairs import ReadReport
from transduce.files.readers import READERS
from transduce.models.card import read_card
from transduce.models.model import Model
from transduce.tokenizers.any_tokenizer import AnyTokenizer, load_tokenizer
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig
from transduce.tokenizers.tokenizer_pair import TokenizerPair
from transduce.training.budget import largest_batch
from transduce.training.checkpoint import Progress, load_checkpoint, newest_intact, read_progress
from transduce.training.display import Display
from transduce.training.faster_precision import (
    TRIAL_TOKENS,
    bfloat16_is_hopeless,
    faster_precision,
    product_times,
)
from transduce.training.loader import Loader
from transduce.training.precision import use_bfloat16
from transduce.training.processes import Processes
from transduce.training.recipe import Recipe
from transduce.training.run_folder import RunFolder
from transduce.training.start_from import find_start
from transduce.training.task import Scoring, Task
from transduce.translation.rules import base_language

_STREAM_NAMES = {"src": "source", "tgt": "target"}


def infer_languages(recipe: Recipe, log: Callable[[str], None]) -> Recipe:
    """The recipe with the languages that the names of the training files tell, if it does not name them."""
    data = recipe.data
    found = {pair for files in data.train if (pair := direction_of_entry(files))}
    if len(found) > 1:
        names = ", ".join(sorted("-".join(pair) for pair in found))
        log(f"warning: the names of the training files tell several directions ({names}); check their columns")
    if data.directions or len(found) != 1:
        return recipe
    source, target = found.pop() if not data.reverse else found.pop()[::-1]
    given = (data.src_lang or source, data.tgt_lang or target)
    if given != (source, target):
        log(
            f"warning: the model is to translate {given[0]} to {given[1]}, but the names of the training files and "
            f"data.reverse={str(data.reverse).lower()} tell {source} to {target}"
        )
    if data.src_lang and data.tgt_lang:
        return recipe
    log(f"data: {given[0]} to {given[1]}, by the names of the files (data.src_lang and data.tgt_lang set it)")
    return replace(recipe, data=replace(data, src_lang=given[0], tgt_lang=given[1]))


def inherit_languages(recipe: Recipe, log: Callable[[str], None]) -> Recipe:
    """The recipe with the languages of the model that it starts from, if that has one direction and nothing tells them.

    Warns of other languages: they may be meant, but the files may also be exchanged.
    """
    start, data = recipe.train.start_from, recipe.data
    if not start or data.directions or recipe.task != "translate":
        return recipe
    directions = read_card(find_start(start))["facts"].get("directions", [])
    if len(directions) != 1:
        return recipe
    source, target = directions[0]
    own = (data.src_lang or source, data.tgt_lang or target)
    if list(map(base_language, own)) != [base_language(source), base_language(target)]:
        log(
            f"warning: this run translates {own[0]} to {own[1]}, but {start}, which it starts from, {source} to "
            f"{target}"
        )
    if own == (data.src_lang, data.tgt_lang):
        return recipe
    log(f"data: {own[0]} to {own[1]}, as {start} (data.src_lang and data.tgt_lang set it)")
    return replace(recipe, data=replace(data, src_lang=own[0], tgt_lang=own[1]))


def warn_of_file_names(data: DataConfig, log: Callable[[str], None]) -> None:
    """Warn of files whose names tell another direction than that of their text, or that are both source and target.

    `infer_languages` does so for the training text of a model with one direction.
    """
    for part in data.parts:
        direction = parse_direction(part.name) if part.name else (data.src_lang, data.tgt_lang)
        checked = [*part.valid, *(part.train if part.name or part.is_replay else ())]
        read = [(files, part.reverse) for files in checked] + [(files, False) for files in part.back_translated]
        for files, reverse in read:
            told = direction_of_entry(files)
            if not told or None in direction:
                continue
            told = told[::-1] if reverse else told
            if list(map(base_language, told)) != list(map(base_language, direction)):
                log(
                    f"warning: {' + '.join(files)} is read as {direction[0]} to {direction[1]}, but its name tells "
                    f"{told[0]} to {told[1]}; check its sides"
                )
    for files in dict.fromkeys([*data.all_train, *data.all_valid]):
        if len(files) == 2 and files[0] == files[1]:
            log(f"warning: {files[0]} is both the source and the target")


def require_text(recipe: Recipe) -> None:
    """Raise an error if training or validation text is missing; of a public corpus, it names the command to get it."""
    needed = [*recipe.data.all_train, *recipe.data.all_valid]
    for name in (name for files in needed for name in files if not Path(name).exists()):
        folder = Path(name).parent.name
        hint = f"; to get it: transduce data get {folder}" if folder in corpus_names() else ""
        raise DataError(f"{name}: no such file{hint}")


def require_examples(recipe: Recipe) -> None:
    """Raise an error if a file of the text has no example of the recipe's task; only its first example is read."""
    reader = READERS[recipe.make_task().reader]
    for files in dict.fromkeys([*recipe.data.all_train, *recipe.data.all_valid]):
        next(reader.pieces([files], ReadReport()) if reader.pieces else reader.read([files], ReadReport()))


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
    log(f"starting from {folder}, with its sizes and vocabulary")
    tokenizer = load_tokenizer(folder)
    known = read_card(folder)["facts"].get("tokenizer", {}).get("symbols", [])
    new = [symbol for symbol in recipe.tokenizer.symbols if symbol not in known]
    if isinstance(tokenizer, Tokenizer) or (isinstance(tokenizer, TokenizerPair) and tokenizer.is_trained):
        return tokenizer.with_symbols(new) if new else tokenizer
    require(not new, f"tokenizer.symbols: the vocabulary of {folder} was imported; symbols cannot be added to it")
    require(not recipe.train.bpe_dropout, f"train.bpe_dropout: the vocabulary of {folder} was imported")
    return tokenizer


def foreign_vocabulary(path: Path, target_path: str | None) -> AnyTokenizer:
    """The vocabulary of `tokenizer.path` and, if the target has its own, of `tokenizer.target_path`."""
    own = Tokenizer.load_foreign(path)
    return TokenizerPair(own, Tokenizer.load_foreign(Path(target_path))) if target_path else own


def with_measured_settings(recipe: Recipe, task: Task, prepared: Prepared) -> Recipe:
    """The recipe with the settings of the model that follow from the training data."""
    index = prepared.train.index
    given = getattr(recipe.model, "source_vocab_size", None)
    require(
        given is None or "source_vocab_size" in index,
        "model.source_vocab_size follows from the vocabularies: leave it out, and set tokenizer.separate=true",
    )
    settings = task.model_settings(index)
    recipe = replace(recipe, model=replace(recipe.model, **settings)) if settings else recipe
    refusal = task.refusal(recipe.model)
    require(refusal is None, refusal or "")
    return recipe


def resolve_batch_tokens(
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


def resolve_precision(
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
        if config.precision == "bfloat16" and device.type == "cpu" and bfloat16_is_hopeless(product := product_times()):
            kept = "; a run keeps the precision that it was started with" if run.config.exists() else ""
            log(
                f"warning: train.precision is bfloat16, and this CPU takes {product.slowdown:,.0f} times as long for "
                f"a product in bfloat16 as in float32{kept}"
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


def resume(run: RunFolder, model: Model, optimizer: torch.optim.Adam, prepared: Prepared, display: Display) -> Progress:
    """Load the newest intact checkpoint, if there is one."""
    corpus, sources = prepared.train.folder.name, prepared.sources
    checkpoint = newest_intact(run.checkpoints, display.log)
    if checkpoint is None:
        return Progress(corpus=corpus, sources=sources)
    before = read_progress(checkpoint)
    if before.corpus != corpus:
        reason = f"the training text has changed since {run.path} was started"
        if changed := [name for name, digest in sources.items() if digest not in set(before.sources.values())]:
            reason += f" ({', '.join(changed)})"
        elif sorted(sources.values()) == sorted(before.sources.values()):
            reason = f"{run.path} was started with this text in another order, or by another version of transduce"
        raise RunError(f"{reason}; restore it to resume, or choose another --out to start a new run")
    progress = load_checkpoint(checkpoint, model, optimizer)
    display.log(f"resuming from {checkpoint}")
    return progress


def scoring_of(recipe: Recipe) -> Scoring:
    """How the model is scored on the validation data."""
    config = recipe.train
    return Scoring(
        config.valid_sentences,
        config.criterion,
        config.bleu_tokenizer,
        recipe.data.tgt_lang,
        config.samples,
        uses_slots=bool(recipe.augment.spans),
    )


def check_scoring(recipe: Recipe, task: Task, examples: Sequence[tuple[str, ...]], log: Callable[[str], None]) -> None:
    """Raise an error if the validation examples cannot be scored; log how they are scored and what is best."""
    scoring, parts = scoring_of(recipe), [part for part in recipe.data.parts if part.valid]
    for language in dict.fromkeys(part.target or scoring.language for part in parts):
        if description := task.check_scoring(replace(scoring, language=language), examples):
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
        **({"truecase": True} if recipe.data.truecase else {}),
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
