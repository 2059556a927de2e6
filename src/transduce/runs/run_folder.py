"""A run on disk: `config.toml`, `metrics.jsonl`, `report.html`, `checkpoints/` and, once finished, `model/`."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from transduce.config import build, read_toml, to_toml
from transduce.disk import flush_folder, write_atomically
from transduce.errors import RunError
from transduce.models.card import CARD, read_card
from transduce.models.model import Model
from transduce.models.saved import save_model
from transduce.runs.checkpoint import list_checkpoints
from transduce.runs.metrics import Metrics
from transduce.runs.recipe import Recipe, differences
from transduce.text.tokenizer import Tokenizer

LOCK = ".lock"


class RunFolder:
    """Where a run keeps its things."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path = path
        self.config, self.checkpoints, self.model = path / "config.toml", path / "checkpoints", path / "model"
        self.tokenizer, self.report, self.profile = path / "tokenizer.model", path / "report.html", path / "profile"
        self.bad_batches = path / "bad_batches.json"
        self.metrics = Metrics(path / "metrics.jsonl", say)

    def check(self, recipe: Recipe) -> Recipe:
        """Make sure that a run in the folder, if there is one, has the same recipe; returns it as it was settled."""
        if self.config.exists():
            before = build(Recipe, read_toml(self.config), str(self.config))
            if recipe.train.batch_tokens == "auto":  # found when the run was begun
                recipe = replace(recipe, train=replace(recipe.train, batch_tokens=before.train.batch_tokens))
            if recipe.train.start_from and before.train.start_from:  # the vocabulary is that model's
                recipe = replace(recipe, tokenizer=before.tokenizer)
            if changed := differences(before, recipe):
                raise RunError(
                    f"{self.path} was begun with other settings: {'; '.join(changed)}. "
                    "Use the same settings to go on, or another --out to start anew"
                )
        elif self.path.exists() and any(not self._is_ours(entry.name) for entry in self.path.iterdir()):
            raise RunError(f"{self.path} holds other things and no run; choose another --out")
        return recipe

    def _is_ours(self, name: str) -> bool:
        """Whether a run that was killed before it had begun may have left this."""
        return name in (LOCK, self.checkpoints.name) or (name.startswith(".") and name.endswith(".tmp"))

    @property
    def begun(self) -> bool:
        """Whether it has anything learnt to go on from."""
        return bool(list_checkpoints(self.checkpoints))

    def begin(self, recipe: Recipe, tokenizer: Tokenizer) -> None:
        """Write down the recipe and the vocabulary."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_atomically(self.config, to_toml(recipe).encode())
        write_atomically(self.tokenizer, tokenizer.model)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second process out of the folder while one trains in it; a run that does not begin leaves none."""
        is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RunError(f"{self.path} is being trained already, by process {file.read().strip()}") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            try:
                yield
            finally:
                if is_new and not self.config.exists():
                    shutil.rmtree(self.path)

    def finished_scores(self, step: int) -> dict[str, float] | None:
        """The scores of the model finished at this step, if it is there."""
        if not (self.model / CARD).exists():
            return None
        facts = read_card(self.model)["facts"]
        return facts["scores"] if facts.get("steps") == step else None

    def write_model(self, model: Model, tokenizer: Tokenizer, facts: dict[str, Any]) -> None:
        """The finished model, put in place whole."""
        fresh, old = self.path / ".model.tmp", self.path / ".model.old"
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)
        save_model(fresh, model, tokenizer, facts)
        flush_folder(fresh)
        if self.model.exists():
            self.model.rename(old)
        fresh.rename(self.model)
        shutil.rmtree(old, ignore_errors=True)
