"""Settings that cannot be meant are refused, and a refused run leaves no folder; doubtful ones give a warning."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import complaint, content, metrics, sets
from toy_run import TINY, as_sets, write_lines

NO_MEMORY = """
import transduce.training.{module} as module
def fail(*_, **__):
    raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
module.{name} = fail
"""


def text_of(trained: Any) -> list[str]:
    """The options of the trained run without its settings."""
    return trained.words[: trained.words.index("--preset")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.warmup=1"], "the learning rate would rise to 0.11 at step 1, and training would diverge"),
        (["train.warmup=1", "train.seed=2"], "raise train.warmup, or give the highest rate with train.learning_rate"),
        (["train.learning_rate_scale=3"], "would diverge"),
        (["train.r_drop=5", "model.dropout=0"], "train.r_drop compares two passes with different dropout"),
        (["train.batch_tokens=auto", "train.device=cpu"], "measures the memory of a GPU"),
        (["train.batch_tokens=3"], "raise train.batch_tokens"),
        (["train.device=quantum"], "device quantum"),
        (["train.precision=fp8", "train.device=cpu"], "fp8 needs an NVIDIA GPU of compute capability 8.9 or higher"),
        (["train.start_from=nowhere"], "nowhere: no such folder"),
        (["model.d_model=33"], "num_heads must divide d_model"),
        (["search.temperature=0.5"], "temperature needs sampling; set sample too"),
        (["masked.share=0.3"], "[masked] has no effect on the task translate; leave it out"),
        (["train.epsilon=inf"], "epsilon must be finite"),
        (['model.architecture=["recurrent"]'], "no architecture ['recurrent']"),
        (["data.valid=[[]]"], "valid: an entry is one file or a pair of files, not 0 files"),
        (['data.train=[["a", "b", "c"]]'], "train: an entry is one file or a pair of files, not 3 files"),
        (['data.train=["a.tsv", ""]'], "train: the name of a file is empty"),
        (["task=dance"], "no task dance"),
    ],
)
def test_a_refused_run_leaves_no_folder(
    transduce: Any, trained: Any, tmp_path: Path, settings: list[str], message: str
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    outcome = transduce(*trained.words, *words, "--out", "new/deep/run", cwd=tmp_path)
    assert message in complaint(outcome)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "train.src: no such file"),
        ({"train.src": b"", "train.tgt": b""}, "no usable sentence pair"),
        ({"train.src": b"a\nb\n", "train.tgt": b"a\n"}, "has 2 lines"),
        ({"train.src": b"\xff\n", "train.tgt": b"a\n"}, "no usable sentence pair"),
        ({"train.src": b"a\n", "train.tgt": b"b\n", "valid.src": b"a\n"}, "valid.tgt"),
    ],
)
def test_bad_text_leaves_no_folder(transduce: Any, tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    words = ["--src", "train.src", "--tgt", "train.tgt", "--valid-src", "valid.src", "--valid-tgt", "valid.tgt"]
    words = words if "valid.src" in files else words[:4]
    outcome = transduce("train", *words, *as_sets(TINY), "--out", "new/run", cwd=tmp_path)
    assert message in complaint(outcome)
    assert {path.name for path in tmp_path.iterdir()} == files.keys()


@pytest.mark.parametrize(("module", "name"), [("resolve", "new_model"), ("loop", "Milestones"), ("steps", "Loader")])
def test_too_little_memory_before_the_first_step_leaves_no_folder(
    transduce: Any, trained: Any, tmp_path: Path, module: str, name: str
) -> None:
    (tmp_path / "kept").mkdir()
    failing = NO_MEMORY.format(module=module, name=name)
    outcome = transduce(*trained.words, "--out", "kept/new/run", cwd=tmp_path, before=failing)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("transduce: out of memory; use a smaller model")
    assert "Traceback" not in outcome.err
    assert [path.name for path in tmp_path.rglob("*")] == ["kept"]


def test_a_refused_run_does_not_touch_a_folder_that_was_there(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = shutil.copytree(trained.run, tmp_path / "run", symlinks=True)
    assert "other settings" in complaint(transduce(*trained.words, *sets(seed=2), "--out", "run", cwd=tmp_path))
    assert content(run) == content(trained.run)


def test_a_run_that_fails_after_a_measured_step_is_kept(transduce: Any, trained: Any, tmp_path: Path) -> None:
    failing = """
import transduce.training.loop as loop
gradients = loop.Steps.gradients
def fail_later(self, step):
    if step == 3:
        raise loop.RunError("this step fails")
    return gradients(self, step)
loop.Steps.gradients = fail_later
"""
    outcome = transduce(*trained.words, "--out", "run", cwd=tmp_path, before=failing)
    assert (outcome.code, outcome.err.splitlines()[-1]) == (2, "transduce: this step fails")
    assert (tmp_path / "run/config.toml").exists()
    kinds = [record["kind"] for record in metrics(tmp_path / "run")]
    assert kinds == ["start", "train", "train", "train"]


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        (sets(cooldown=9), "train.steps (2) is less than train.warmup (1) and train.cooldown (9) together"),
        (sets(average=4), "train.average is 4, but there will be 1 checkpoints only; lower train.save_every"),
        (sets(learning_rate=0.05), "the learning rate will rise to 0.05, and training may diverge; lower train.learn"),
        ([], None),
    ],
)
def test_doubtful_settings_give_one_line(
    transduce: Any, trained: Any, tmp_path: Path, settings: list[str], warning: str | None
) -> None:
    sizes = {name: value for name, value in TINY.items() if not name.startswith("train.")}
    few = sets(steps=2, warmup=1, learning_rate=0.001, batch_tokens=512)
    words = [*text_of(trained), *as_sets(sizes), *few, *settings]
    outcome = transduce(*words, "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    hints = [line for line in outcome.err.splitlines() if "learning rate" in line or "train." in line]
    assert len(hints) == (1 if warning else 0), hints
    assert warning is None or warning in hints[0]


def test_a_column_of_numbers_gives_a_warning(transduce: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "text.tsv", [f"{number / 7:.4f}\tbo {number}\tba" for number in range(40)])
    sizes = as_sets({name: value for name, value in TINY.items() if not name.startswith("train.")})
    outcome = transduce("train", "--train", "text.tsv", *sizes, *sets(steps=1), "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "data: 40 of 40 sources have no letters; check the columns: a line of a .tsv file has" in outcome.err
    assert "targets" not in outcome.err


def test_a_high_learning_rate_beside_start_from_and_validation_on_training_text_give_a_warning(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    write_lines(tmp_path / "text.tsv", ["ba bo\tbo ba", "gi\tgi"])
    words = ["train", "--train", "text.tsv", "--valid", "./text.tsv", "--start-from", trained.run, "--out", "run"]
    outcome = transduce(*words, *sets(steps=1, warmup=100), cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "text.tsv is both training text and validation text" in outcome.err
    assert "for fine-tuning, give a lower one, e.g. train.learning_rate=1e-4" in outcome.err
