"""`transduce.train`: the command line's abilities in one Python call."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.distributed.processes import join_processes
from transduce.runs.recipe import load_recipe
from transduce.text.pairs import corpus_of
from transduce.training.display import Display
from transduce.training.loop import Outcome, run_training

Paths = str | Path | Sequence[str | Path]


def train(
    out: str | Path,
    *,
    recipe: str | Path | None = None,
    src: Paths = (),
    tgt: Paths = (),
    train: Paths = (),
    valid_src: Paths = (),
    valid_tgt: Paths = (),
    valid: Paths = (),
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    profile: bool = False,
) -> Outcome:
    """Train a model in the folder `out`, or go on where it was left.

    Text comes as `src` with `tgt` (plain files, line by line) or as `train` (.tsv or .jsonl with both sides), or from a
    recipe; validation text likewise. `settings` names any setting: {"train.steps": 2000, "model.norm": "pre"}; `sets`
    does the same in the words of the command line: ["train.steps=2000"]. With `profile`, a few steps are recorded in
    the folder `profile` of the run.

    Ctrl-C and SIGTERM save a checkpoint and end it early: then the outcome is not `finished`, and names the signal.
    """
    with join_processes() as processes:
        with processes.first_before_others():
            flags: Table = {}
            for key, both, sources, targets in (("train", train, src, tgt), ("valid", valid, valid_src, valid_tgt)):
                if corpus := corpus_of(_list(both), _list(sources), _list(targets), key):
                    flags.setdefault("data", {})[key] = corpus
            for name, value in (settings or {}).items():
                section, _, key = name.partition(".")
                flags.setdefault(section, {})[key] = value
            resolved = load_recipe(Path(recipe) if recipe else None, preset, flags, list(sets))
        display = Display(quiet=not processes.is_first)
        return run_training(resolved, Path(out), display, profile=profile, processes=processes)


def _list(paths: Paths) -> list[str | Path]:
    return [paths] if isinstance(paths, str | Path) else list(paths)
