"""`transduce.train`: training from Python, with the same options as the command line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.config import Table, merge, read_toml, require
from transduce.files.pairs import corpus_of
from transduce.training.display import Display
from transduce.training.loop import Outcome, run_training
from transduce.training.processes import join_processes
from transduce.training.recipe import load_recipe

Paths = str | Path | Sequence[str | Path]


def train(
    out: str | Path,
    *,
    recipe: str | Path | None = None,
    task: str | None = None,
    src: Paths = (),
    tgt: Paths = (),
    train: Paths = (),
    text: Paths = (),
    valid_src: Paths = (),
    valid_tgt: Paths = (),
    valid: Paths = (),
    preset: str | None = None,
    style: str | None = None,
    start_from: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    profile: bool = False,
) -> Outcome:
    """Train a model in the folder `out`, or resume the run in it.

    `task` is what the model learns, by default translate (see `features.py`). The training text is `src`
    with `tgt` (plain files with one sentence per line), `train` (.tsv or .jsonl with both sides; for parse, trees in
    brackets; for classify, texts with labels, or images), or the text of the recipe; the same holds for validation
    text. `text` is running text for a language model: .txt files, each one document, or .jsonl with a field "text"; its
    validation text is `valid`. For masked and denoise, every line of it is a text. `settings` maps names of settings to
    values: {"train.steps": 2000, "model.norm": "pre"}; `sets` has the form of the command line: ["train.steps=2000"].

    `preset` selects the sizes of the model (small by default), `style` the member of the family: paper, gpt2, llama,
    bert, t5, bart, marian, vit or whisper.

    With `start_from`, training starts from the weights, sizes and vocabulary of a run or a model folder, or of the
    bundled model ("bundled"). With `profile`, a few steps are profiled and written to the folder `profile` of the run.

    Ctrl-C and SIGTERM save a checkpoint and stop early: `finished` of the outcome is then false, and `stop_signal` is
    the signal.
    """
    with join_processes() as processes:
        with processes.main_process_first():
            flags = given_settings(recipe, task, src, tgt, train, text, valid_src, valid_tgt, valid)
            if start_from is not None:
                flags["train"] = {"start_from": str(start_from)}
            for name, value in (settings or {}).items():
                for part in reversed(name.split(".")):
                    value = {part: value}
                flags = merge(flags, value)
            resolved = load_recipe(Path(recipe) if recipe else None, preset, flags, list(sets), Path(out), style)
        display = Display(quiet=not processes.is_main)
        return run_training(resolved, Path(out), display, profile=profile, processes=processes)


def given_settings(
    recipe: str | Path | None,
    task: str | None,
    src: Paths,
    tgt: Paths,
    train: Paths,
    text: Paths,
    valid_src: Paths,
    valid_tgt: Paths,
    valid: Paths,
) -> Table:
    """The settings of a task and of files, which are given as in `train`."""
    flags: Table = {} if task is None else {"task": task}
    if _list(text):
        require(not (_list(src) or _list(tgt) or _list(train)), "text cannot be given beside pairs of texts")
        train = text
        if task is None and (recipe is None or "task" not in read_toml(Path(recipe))):
            flags["task"] = "language_model"
    for key, both, sources, targets in (("train", train, src, tgt), ("valid", valid, valid_src, valid_tgt)):
        if corpus := corpus_of(_list(both), _list(sources), _list(targets), key):
            flags.setdefault("data", {})[key] = corpus
    return flags


def _list(paths: Paths) -> list[str | Path]:
    return [paths] if isinstance(paths, str | Path) else list(paths)
