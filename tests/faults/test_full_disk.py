"""A full disk: training continues, older checkpoints are kept, and every failed save is reported."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fault_injection import FULL, SmallRun, assert_intact, assert_same_result, train_reference_run

from transduce.training.checkpoint import list_checkpoints


@pytest.fixture(scope="module")
def small(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    settings = {"train.steps": 12, "train.save_every": 2, "train.warmup": 10, "train.learning_rate_scale": 0.3}
    return train_reference_run(transduce, tmp_path_factory.mktemp("small"), **settings)


# The function fails, as on a full disk, while steps {first} to {last} are saved.
TEMPORARILY_FULL = """
import errno
import {module} as module
import transduce.training.milestones as milestones
real_write, real_save, full = module.{function}, milestones.save_checkpoint, False
def write(*arguments):
    if full:
        raise OSError(errno.ENOSPC, "No space left on device", str(arguments[0]))
    return real_write(*arguments)
def save(checkpoints, model, moments, tokenizer, progress, facts):
    global full
    full = {first} <= progress.step <= {last}
    return real_save(checkpoints, model, moments, tokenizer, progress, facts)
module.{function}, milestones.save_checkpoint = write, save
"""
WRITERS = [
    ("transduce.training.checkpoint", "save_tensors"),
    ("transduce.training.checkpoint", "write_manifest"),
    ("transduce.disk", "flush_folder"),
    ("transduce.report.report", "write_report"),
]


@pytest.mark.parametrize(("module", "function"), WRITERS)
def test_a_temporarily_full_disk_prevents_only_the_checkpoints_of_that_time(
    transduce: Any, small: SmallRun, tmp_path: Path, module: str, function: str
) -> None:
    code = TEMPORARILY_FULL.format(module=module, function=function, first=4, last=6)
    outcome = transduce(*small.arguments, "--out", tmp_path / "run", cwd=small.folder, before=code)
    assert outcome.code == 0, outcome.err
    warnings = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
    if function != "write_report":
        assert [line.split(":")[1] for line in warnings] == [f" no checkpoint at step {step}" for step in (4, 6)]
        assert all("No space left on device" in line and "the last is of step 2" in line for line in warnings)
    else:
        assert [line.split(":")[1] for line in warnings] == [f" {tmp_path}/run is not up to date"] * 2
    assert_intact(tmp_path / "run")
    assert_same_result(tmp_path / "run", small.reference)
    assert (tmp_path / "run/metrics.jsonl").read_text().count('"train"') == 12


def test_a_run_that_cannot_save_its_last_checkpoint_keeps_older_ones_and_fails(
    transduce: Any, small: SmallRun, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code = TEMPORARILY_FULL.format(module="transduce.training.checkpoint", function="save_tensors", first=4, last=99)
    outcome = transduce(*small.arguments, "--out", run, cwd=small.folder, before=code)
    assert outcome.code == 2
    assert outcome.err.count("warning: no checkpoint") == 4
    assert "transduce: no checkpoint at step 12: " in outcome.err.splitlines()[-1]
    assert "Free disk space, then run the same command" in outcome.err.splitlines()[-1]
    assert [path.name for path in list_checkpoints(run / "checkpoints")] == ["step-2"]
    assert list((run / "checkpoints").glob(".*")) == []
    assert_intact(run)
    assert transduce(*small.arguments, "--out", run, cwd=small.folder).code == 0
    assert_same_result(run, small.reference)


def can_mount() -> bool:
    """Whether a file system can be mounted in a user namespace."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not FULL, reason="starts a new interpreter; run by `make faults`")
@pytest.mark.skipif(FULL and not can_mount(), reason="needs permission to mount a tmpfs (unshare -rm)")
def test_a_small_disk_keeps_the_checkpoints_that_fit(small: SmallRun, tmp_path: Path) -> None:
    size = sum(path.stat().st_size for path in (small.reference / "checkpoints/step-12").iterdir())
    script = f"""
mkdir run && mount -t tmpfs -o size={int(2.6 * size)} tmpfs run
"$@"; code=$?
cp -rP run copy; exit $code
"""
    command = [sys.executable, "-m", "transduce", *small.arguments, "--out", "run", "--set", "train.keep=6"]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("warning: no checkpoint at step") >= 3
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert [path.name for path in list_checkpoints(tmp_path / "copy/checkpoints")] == ["step-2", "step-4"]
    assert_intact(tmp_path / "copy")
    for name in ("model", "optimizer"):
        path = f"checkpoints/step-4/{name}.safetensors"
        assert (tmp_path / "copy" / path).stat().st_size == (small.reference / path.replace("-4", "-12")).stat().st_size


@pytest.mark.skipif(not FULL, reason="starts a new interpreter; run by `make faults`")
@pytest.mark.skipif(FULL and not can_mount(), reason="needs permission to mount a tmpfs (unshare -rm)")
@pytest.mark.parametrize("size", ["4k", "12k", "20k"])
def test_a_disk_that_is_too_small_for_prepared_text(small: SmallRun, tmp_path: Path, size: str) -> None:
    script = f"""
mkdir cache && mount -t tmpfs -o size={size} tmpfs cache && export TRANSDUCE_CACHE="$PWD/cache"
"$@"; code=$?
ls -A cache; exit $code
"""
    command = [sys.executable, "-m", "transduce", *small.arguments, "--out", "run"]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert f"{tmp_path}/cache, where prepared text is kept, cannot be written: No space" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()
