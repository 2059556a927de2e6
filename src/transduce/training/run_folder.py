"""A run on disk: `config.toml`, `metrics.jsonl`, `report.html`, `checkpoints/` and, once finished, `model/`."""

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.config import Table, as_set, build, read_toml, to_table, to_toml
from transduce.data.prepare import Prepared
from transduce.disk import flush_folder, write_atomically
from transduce.errors import ModelError, RunError
from transduce.models.folder import CARD, read_card, save_model
from transduce.models.merged_weights import Base, read_base
from transduce.models.model import Model
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.training.adam import Adam
from transduce.training.checkpoint import Progress, list_checkpoints, load_checkpoint, newest_intact, read_progress
from transduce.training.metrics import Metrics
from transduce.training.recipe import Recipe
from transduce.training.task import TASKS

LOCK = ".lock"
# Settings that may change when a run is resumed: they affect only its length, output and checkpoints. Training text may
# move to other files, because a run compares the digests of their content.
FREE_TO_CHANGE = {
    *("train.steps", "train.minutes", "train.adapts", "train.patience", "train.log_every", "train.valid_sentences"),
    *("train.samples", "train.save_every", "train.keep"),
    *("train.average", "train.shard", "train.device", "train.threads", "train.cooldown", "data.train", "data.valid"),
    *("data.replay", "data.back_translated", "data.by_sentence", "data.truecase", "data.src_lang", "data.tgt_lang"),
    "data.source_tags",
    *("search", "train.criterion", "train.bleu_tokenizer", "train.tensorboard", "train.wandb"),
}
_DIRECTION = re.compile(r"data\.directions\.[^.]+\.")


class RunFolder:
    """The folder of a run and the paths in it."""

    def __init__(self, path: Path, log: Callable[[str], None]) -> None:
        self.path, self._log = path, log
        self.config, self.checkpoints, self.model = path / "config.toml", path / "checkpoints", path / "model"
        self.start = path / "start.safetensors"
        """The weights that training started from, if they are to have a share in the finished model."""
        self.report, self.profile = path / "report.html", path / "profile"
        self.outputs = path / "outputs.jsonl"
        """All outputs of the finished model that were scored, with sources and references, for `transduce compare`."""
        self.bad_batches = path / "bad_batches.json"
        self.metrics = Metrics(path / "metrics.jsonl", log)

    def check(self, recipe: Recipe) -> Recipe:
        """Raise an error if the folder holds another run; returns the recipe with values resolved at its start."""
        if self.config.exists():
            before = build(Recipe, read_toml(self.config), str(self.config))
            if recipe.train.batch_tokens == "auto":  # resolved when the run was started
                recipe = replace(recipe, train=replace(recipe.train, batch_tokens=before.train.batch_tokens))
            if recipe.train.precision == "auto":
                recipe = replace(recipe, train=replace(recipe.train, precision=before.train.precision))
            languages = (recipe.data.src_lang or before.data.src_lang, recipe.data.tgt_lang or before.data.tgt_lang)
            if not recipe.data.directions:  # those that were inferred when the run was started
                recipe = replace(recipe, data=replace(recipe.data, src_lang=languages[0], tgt_lang=languages[1]))
            recipe = _with_measured(recipe, before)
            if changed := differences(before, recipe):
                raise RunError(
                    f"{self.path} was started with other settings: {'; '.join(changed)}. "
                    "Use the same settings to resume, or another --out to start a new run"
                )
        elif self.path.exists() and not self._has_only_leftovers():
            raise RunError(f"{self.path} contains other files and no run; choose another --out")
        return recipe

    def resume(self, model: Model, optimizer: Adam, prepared: Prepared) -> Progress:
        """Load the newest intact checkpoint, if there is one."""
        corpus, sources = prepared.train.folder.name, prepared.sources
        checkpoint = newest_intact(self.checkpoints, self._log)
        if checkpoint is None:
            return Progress(corpus=corpus, sources=sources)
        before = read_progress(checkpoint)
        if before.corpus != corpus:
            reason = f"the training text has changed since {self.path} was started"
            if changed := [name for name, digest in sources.items() if digest not in set(before.sources.values())]:
                reason += f" ({', '.join(changed)})"
            elif sorted(sources.values()) == sorted(before.sources.values()):
                reason = f"{self.path} was started with this text in another order, or by another version of transduce"
            raise RunError(f"{reason}; restore it to resume, or choose another --out to start a new run")
        progress = load_checkpoint(checkpoint, model, optimizer)
        progress.elapsed = max(progress.elapsed, progress.seconds)  # older versions did not keep it
        self._log(f"resuming from {checkpoint}")
        return progress

    def require_same_base(self, base: Base) -> None:
        """Raise an error if the run was started with low-rank updates of other weights."""
        for checkpoint in list_checkpoints(self.checkpoints):
            before = base
            with suppress(ModelError):  # a damaged one is not resumed from
                before = read_base(read_card(checkpoint).get("base"), checkpoint / CARD)
            if before.sha256 != base.sha256:
                raise RunError(
                    f"{self.path} was started from other weights than {base.path} has now; restore them to resume, or "
                    "choose another --out to start a new run"
                )

    def _has_only_leftovers(self) -> bool:
        """Whether a run that was killed before it wrote its recipe may have left all that is in the folder."""
        ours = (LOCK, self.checkpoints.name, self.start.name)
        return all(path.name in ours or path.match(".*.tmp") for path in self.path.iterdir())

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return bool(list_checkpoints(self.checkpoints))

    @property
    def corpus(self) -> str:
        """The key of the training text at the newest checkpoint that can be read; empty if there is none."""
        for checkpoint in reversed(list_checkpoints(self.checkpoints)):
            with suppress(OSError, ValueError, TypeError):
                return read_progress(checkpoint).corpus
        return ""

    def begin(self, recipe: Recipe, tokenizer: AnyTokenizer) -> None:
        """Write the recipe and the tokenizer."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_atomically(self.config, to_toml(recipe).encode())
        write_atomically(self.path / tokenizer.file_name, tokenizer.model)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against a second process; if the run fails before its first step, leave no new folder."""
        new = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RunError(f"{self.path} is already being trained by process {file.read().strip()}") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            failed = True
            try:
                yield
                failed = False
            finally:
                if new and (not self.config.exists() or (failed and not self._has_content())):
                    shutil.rmtree(self.path)
                    for parent in new[1:]:
                        with suppress(OSError):  # something else is in it now
                            parent.rmdir()

    def _has_content(self) -> bool:
        """Whether the run has made a step that left something on disk."""
        measured = any(record["kind"] != "start" for record in self.metrics.records)
        return bool(self.has_checkpoint or measured or self.bad_batches.exists())

    def finished_scores(self, step: int, recipe: Recipe, reason: str) -> dict[str, float] | None:
        """The scores of the model that was finished at this step, for this reason, if there is one; logs that it is."""
        facts = read_card(self.model)["facts"] if (self.model / CARD).exists() else {}
        if facts.get("steps") != step:
            return None
        self._log(f"{self.model} is finished after step {step:,} ({reason}); raise it to train further")
        if changed := differences(build(Recipe, read_toml(self.config), str(self.config)), recipe, free=set()):
            self._log(f"warning: settings that differ have no effect on it: {'; '.join(changed)}")
        scores: dict[str, float] = facts["scores"]
        return scores

    def write_model(self, model: Model, tokenizer: AnyTokenizer, facts: dict[str, Any]) -> None:
        """Write the finished model; the folder appears by a rename, so that it is never incomplete."""
        new, old = self.path / ".model.tmp", self.path / ".model.old"
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        save_model(new, model, tokenizer, facts)
        flush_folder(new)
        if self.model.exists():
            self.model.rename(old)
        new.rename(self.model)
        shutil.rmtree(old, ignore_errors=True)


def _with_measured(recipe: Recipe, before: Recipe) -> Recipe:
    """The recipe with the settings of the model that followed from the training data when the run was started."""
    if type(recipe.model) is not type(before.model) or recipe.task != before.task:
        return recipe
    names = [name for name in TASKS[recipe.task].measured if hasattr(before.model, name)]
    measured = {name: getattr(before.model, name) for name in names}
    return replace(recipe, model=replace(recipe.model, **measured)) if measured else recipe


def differences(old: Recipe, new: Recipe, free: Set[str] = FREE_TO_CHANGE) -> list[str]:
    """Settings that differ, as "section.key (there ..., here ...)", unless they are free to change."""
    before, now = _flat(to_table(old)), _flat(to_table(new))
    moved = (
        {"train.start_from", "tokenizer.path", "tokenizer.target_path"} & before.keys() & now.keys()
    )  # files that were read at the start
    names = [name for name in sorted(now.keys() | before.keys()) if before.get(name) != now.get(name)]
    free = free | moved | ({old.task, new.task} if old.task != new.task else set())  # each has only its own section
    return [
        f"{name} (there {as_set(before.get(name))}, here {as_set(now.get(name))})"
        for name in names
        if _DIRECTION.sub("data.", name) not in free and name.partition(".")[0] not in free
    ]


def _flat(table: Table) -> dict[str, Any]:
    """The settings by their full names."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in _flat(value).items()}
        else:
            flat[name] = value
    return flat
