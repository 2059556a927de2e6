"""Checkpoints: saving and loading, detection of damage, and atomic writes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import Training, assert_bitwise_equal, flip_a_byte, names, save, save_steps

from transduce import disk
from transduce.errors import RunError
from transduce.models.folder import load_model
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training import checkpoint as checkpoint_module
from transduce.training.checkpoint import Progress, find_damage, load_checkpoint, newest_intact, prune

FILES = ["model.json", "model.safetensors", "optimizer.safetensors", "state.json", "tokenizer.model"]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


# Round trip


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_updates_after_loading_are_bit_identical_to_an_uninterrupted_run(
    folder: Path, tokenizer: Tokenizer, positions: str
) -> None:
    uninterrupted = Training(positions=positions).updated(3)
    saved = save(folder, tokenizer, uninterrupted)
    at_saving = uninterrupted.tensors()
    uninterrupted.updated(3)

    resumed = Training(seed=99, positions=positions)
    resumed.progress = load_checkpoint(saved, resumed.model, resumed.optimizer)
    assert_bitwise_equal(resumed.tensors(), at_saving)
    assert_bitwise_equal(resumed.updated(3).tensors(), uninterrupted.tensors())


def test_loading_restores_an_earlier_state(folder: Path, tokenizer: Tokenizer) -> None:
    training = Training().updated(2)
    saved, at_saving = save(folder, tokenizer, training), training.tensors()
    training.updated(4)
    training.progress = load_checkpoint(saved, training.model, training.optimizer)
    assert training.progress.step == 2
    assert_bitwise_equal(training.tensors(), at_saving)


def test_progress_is_restored(folder: Path, tokenizer: Tokenizer) -> None:
    training = Training().updated(1)
    training.progress = Progress(step=7, seconds=12.5, best_step=4, best_score=31.25)
    assert load_checkpoint(save(folder, tokenizer, training), training.model, training.optimizer) == Progress(
        step=7, seconds=12.5, best_step=4, best_score=31.25
    )


def test_progress_before_any_validation_is_restored(folder: Path, tokenizer: Tokenizer) -> None:
    training = Training().updated(1)
    assert training.progress.best_score == float("-inf")
    saved = save(folder, tokenizer, training)
    assert load_checkpoint(saved, training.model, training.optimizer) == training.progress


def test_the_best_step_has_the_highest_score_then_the_lowest_loss_and_a_new_metric_starts_anew() -> None:
    progress = Progress()
    for step, (metric, score, loss, best) in enumerate(
        [
            ("bleu", 0.0, 5.0, 1),
            ("bleu", 0.0, 4.0, 2),
            ("bleu", 0.0, 4.5, 2),
            ("bleu", 1.0, 6.0, 4),
            ("bleu", 0.5, 1.0, 4),
            ("chrf", 0.1, 7.0, 6),
            ("chrf", 0.1, 7.0, 6),
        ],
        start=1,
    ):
        progress.step = step
        progress.compare(metric, score, loss)
        assert progress.best_step == best


def test_a_checkpoint_is_also_a_model_folder(folder: Path, tokenizer: Tokenizer) -> None:
    training = Training(vocab_size=tokenizer.vocab_size).updated(2)
    loaded = load_model(save(folder, tokenizer, training))
    assert_bitwise_equal(dict(loaded.model.state_dict()), dict(training.model.state_dict()))
    assert loaded.model.config == training.model.config
    assert loaded.tokenizer.encode("a cat ran") == tokenizer.encode("a cat ran")
    assert loaded.facts == {"made": "here"}


def test_the_manifest_names_every_file(folder: Path, tokenizer: Tokenizer) -> None:
    saved = save(folder, tokenizer, Training().updated(1))
    assert saved == folder / "step-1"
    assert sorted(path.name for path in saved.iterdir()) == sorted([*FILES, "manifest.json"])
    assert sorted(json.loads((saved / "manifest.json").read_text())) == FILES
    assert find_damage(saved) is None


# Damage


@pytest.mark.parametrize("damage", [flip_a_byte, cut_short, empty, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_and_the_previous_checkpoint_is_used(
    folder: Path, tokenizer: Tokenizer, name: str, damage: Callable[[Path], None]
) -> None:
    save_steps(folder, tokenizer, [1, 2])
    damage(folder / "step-2" / name)
    logged: list[str] = []
    assert newest_intact(folder, logged.append) == folder / "step-1"
    (line,) = logged
    assert "step-2" in line
    assert name in line


@pytest.mark.parametrize("damage", [cut_short, empty, Path.unlink])
def test_a_damaged_manifest_is_detected(folder: Path, tokenizer: Tokenizer, damage: Callable[[Path], None]) -> None:
    save_steps(folder, tokenizer, [1, 2])
    damage(folder / "step-2" / "manifest.json")
    logged: list[str] = []
    assert newest_intact(folder, logged.append) == folder / "step-1"
    assert "manifest.json" in logged[0]


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"state.json": 5}'])
def test_an_incomplete_manifest_is_damage(folder: Path, tokenizer: Tokenizer, text: str) -> None:
    save_steps(folder, tokenizer, [1])
    (folder / "step-1" / "manifest.json").write_text(text)
    assert find_damage(folder / "step-1")


def test_several_damaged_checkpoints_are_skipped(folder: Path, tokenizer: Tokenizer) -> None:
    save_steps(folder, tokenizer, [8, 9, 10, 11])  # by number, not by name: step-9 comes before step-10
    for step in (10, 11):
        flip_a_byte(folder / f"step-{step}" / "model.safetensors")
    logged: list[str] = []
    assert newest_intact(folder, logged.append) == folder / "step-9"
    assert ["step-11" in logged[0], "step-10" in logged[1]] == [True, True]


def test_an_intact_newest_checkpoint_is_used_without_a_message(folder: Path, tokenizer: Tokenizer) -> None:
    save_steps(folder, tokenizer, [9, 10])
    logged: list[str] = []
    assert newest_intact(folder, logged.append) == folder / "step-10"
    assert logged == []


def test_if_every_checkpoint_is_damaged_the_run_fails_instead_of_starting_again(
    folder: Path, tokenizer: Tokenizer
) -> None:
    save_steps(folder, tokenizer, [1, 2])
    for step in (1, 2):
        cut_short(folder / f"step-{step}" / "optimizer.safetensors")
    with pytest.raises(RunError, match="damaged"):
        newest_intact(folder, lambda _: None)


def test_a_run_with_only_damaged_checkpoints_fails_every_time(folder: Path, tokenizer: Tokenizer) -> None:
    save_steps(folder, tokenizer, [10, 20])
    for step in (10, 20):
        flip_a_byte(folder / f"step-{step}" / "model.safetensors")
    for _ in range(2):
        with pytest.raises(RunError, match="every checkpoint is damaged"):
            newest_intact(folder, lambda _: None)


def test_a_run_without_checkpoints_has_no_newest_one(folder: Path) -> None:
    assert newest_intact(folder, pytest.fail) is None


# Incomplete checkpoints


@pytest.mark.parametrize(
    ("module", "failing"),
    [(checkpoint_module, name) for name in ("save_model", "save_tensors", "write_manifest")] + [(disk, "flush_folder")],
)
def test_a_failed_save_leaves_no_checkpoint_and_does_not_prevent_the_next(
    folder: Path, tokenizer: Tokenizer, module: Any, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_steps(folder, tokenizer, [1])
    training = Training().updated(2)

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, failing, fail)
        with pytest.raises(OSError, match="no space"):
            save(folder, tokenizer, training)
    assert names(folder) == ["step-1"]
    assert newest_intact(folder, pytest.fail) == folder / "step-1"

    save(folder, tokenizer, training)
    assert newest_intact(folder, pytest.fail) == folder / "step-2"


def test_folders_of_incomplete_saves_are_ignored_and_deleted(folder: Path, tokenizer: Tokenizer) -> None:
    save_steps(folder, tokenizer, [1])
    shutil.copytree(folder / "step-1", folder / ".step-5.tmp")
    (folder / "step-6.tmp").mkdir()
    (folder / "step-x").mkdir()
    assert names(folder) == ["step-1"]
    assert newest_intact(folder, pytest.fail) == folder / "step-1"
    prune(folder, keep=3, best_step=0, every=1, last_step=9)
    assert not (folder / ".step-5.tmp").exists()
    assert names(folder) == ["step-1"]
