"""Which checkpoints are kept, and which one is the best."""

from pathlib import Path

import pytest
from checkpoints import flip_a_byte, names, save, save_steps

from transduce.tokenizers.tokenizer import Tokenizer
from transduce.training.checkpoint import find_damage, list_checkpoints, newest_intact, prune, scheduled


@pytest.mark.parametrize(
    ("keep", "best_step", "left"),
    [
        (1, 0, [100]),
        (2, 0, [40, 100]),
        (2, 9, [9, 40, 100]),
        (2, 100, [40, 100]),
        (3, 8, [8, 10, 40, 100]),
        (9, 0, [8, 9, 10, 40, 100]),
    ],
)
def test_pruning_keeps_the_last_and_the_best(
    folder: Path, tokenizer: Tokenizer, keep: int, best_step: int, left: list[int]
) -> None:
    save_steps(folder, tokenizer, [8, 9, 10, 40, 100])
    prune(folder, keep, best_step, every=1, last_step=100)
    assert names(folder) == [f"step-{step}" for step in left]
    assert all(find_damage(path) is None for path in list_checkpoints(folder))


def test_the_checkpoint_of_a_stop_is_kept_in_addition_while_it_is_the_newest(
    folder: Path, tokenizer: Tokenizer
) -> None:
    training = save_steps(folder, tokenizer, [10, 20, 30, 34])
    prune(folder, keep=2, best_step=0, every=10, last_step=100)
    assert names(folder) == ["step-20", "step-30", "step-34"]
    training.progress.step = 40
    save(folder, tokenizer, training)
    prune(folder, keep=2, best_step=0, every=10, last_step=100)
    assert names(folder) == ["step-30", "step-40"]


def test_scheduled_checkpoints_are_those_of_regular_steps_and_the_last(folder: Path, tokenizer: Tokenizer) -> None:
    save_steps(folder, tokenizer, [8, 10, 13, 20, 100, 105])
    folders = scheduled(folder, every=10, last_step=105)
    assert [path.name for path in folders] == ["step-10", "step-20", "step-100", "step-105"]


def test_best_points_to_the_best_checkpoint_and_moves_with_it(folder: Path, tokenizer: Tokenizer) -> None:
    save_steps(folder, tokenizer, [1, 2, 3])
    prune(folder, keep=5, best_step=0, every=1, last_step=3)
    assert not (folder / "best").exists()
    for best_step in (1, 3):
        prune(folder, keep=5, best_step=best_step, every=1, last_step=3)
        assert (folder / "best").resolve() == (folder / f"step-{best_step}").resolve()
    assert names(folder) == ["step-1", "step-2", "step-3"]


def test_if_a_better_checkpoint_was_not_saved_the_previous_best_is_kept(folder: Path, tokenizer: Tokenizer) -> None:
    save_steps(folder, tokenizer, [1, 2, 3])
    prune(folder, keep=2, best_step=1, every=1, last_step=9)
    prune(folder, keep=2, best_step=4, every=1, last_step=9)
    assert names(folder) == ["step-1", "step-2", "step-3"]
    assert (folder / "best").resolve() == (folder / "step-1").resolve()


@pytest.mark.parametrize("keep", [1, 2])
def test_pruning_keeps_the_newest_checkpoint_even_if_a_damaged_one_has_a_higher_step(
    folder: Path, tokenizer: Tokenizer, keep: int
) -> None:
    """20 and 30 are damaged; the run resumes from 10 and stops at 15."""
    training = save_steps(folder, tokenizer, [10, 20, 30])
    for step in (20, 30):
        flip_a_byte(folder / f"step-{step}" / "model.safetensors")
    assert newest_intact(folder, lambda _: None) == folder / "step-10"
    training.progress.step = 15
    saved = save(folder, tokenizer, training)
    prune(folder, keep, best_step=0, every=5, last_step=100)
    assert saved.exists()
    assert newest_intact(folder, lambda _: None) == saved
