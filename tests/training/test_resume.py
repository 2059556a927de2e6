"""Stopping and resuming runs, and the lock of a run's folder."""

import fcntl
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import complaint, content, copied, metrics
from toy_run import TINY, write_lines

from transduce import train

# Stopping and resuming


@pytest.fixture(scope="module", params=[signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def stopped(
    request: pytest.FixtureRequest, transduce: Any, trained: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The trained run again: stopped by a signal, used while it is unfinished, and resumed."""
    folder = tmp_path_factory.mktemp("stopped")
    pipe, stderr = os.pipe()
    # A small pipe holds fewer lines than training writes, so that training cannot finish before we read more.
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    process = transduce.background(*trained.words, "--out", "run", cwd=folder, stderr=stderr)
    os.close(stderr)
    output = b""
    while b"step 1/" not in output:
        part = os.read(pipe, 64)
        assert part, output
        output += part
    process.send_signal(request.param)
    while part := os.read(pipe, 4096):
        output += part
    os.close(pipe)
    code = process.wait()
    run = folder / "run"
    result = {
        "signal": request.param,
        "code": code,
        "err": output.decode(),
        "checkpoints": sorted(path.name for path in (run / "checkpoints").glob("step-*")),
        "had_model": (run / "model").exists(),
        "info": transduce("info", "-m", "run", "--json", cwd=folder),
        "translation": transduce("translate", "-m", "run", stdin="ba be\n", cwd=folder),
    }
    result["resumed"] = transduce(*trained.words, "--out", "run", cwd=folder)
    return result | {"run": run}


def test_changed_settings_of_a_finished_run_are_named(transduce: Any, trained: Any, tmp_path: Path) -> None:
    run = copied(trained, tmp_path)
    before = content(run)
    outcome = transduce(*trained.words, "--set", "search.beam=2", "--out", "run", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.err.splitlines()[-1] == (
        "warning: settings that differ have no effect on it: search.beam (there 4, here 2)"
    )
    assert content(run) == before


def test_a_stopped_run_prints_how_to_resume(stopped: dict[str, Any]) -> None:
    assert stopped["code"] == 128 + stopped["signal"]
    assert "Traceback" not in stopped["err"]
    step = re.search(
        r"stopped at step (\d+) \(run/checkpoints/step-\1\); run the same command to resume", stopped["err"]
    )
    assert step
    assert 1 <= int(step[1]) < 60
    assert f"step-{step[1]}" in stopped["checkpoints"]
    assert not stopped["had_model"]


def test_a_stopped_run_can_be_used_with_a_warning(stopped: dict[str, Any]) -> None:
    assert stopped["translation"].code == 0
    assert stopped["translation"].out.count("\n") == 1
    assert "run is not finished; using its newest checkpoint, step-" in stopped["translation"].err
    assert "/checkpoints/step-" in json.loads(stopped["info"].out)["folder"]


def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(stopped: dict[str, Any], trained: Any) -> None:
    assert stopped["resumed"].code == 0, stopped["resumed"].err
    assert "resuming from run/checkpoints/step-" in stopped["resumed"].err
    for name in ("model.safetensors", "optimizer.safetensors"):
        path = Path("checkpoints/step-60") / name
        assert (stopped["run"] / path).read_bytes() == (trained.run / path).read_bytes()


def test_a_resumed_run_makes_the_model_of_an_uninterrupted_one(stopped: dict[str, Any], trained: Any) -> None:
    path = Path("model/model.safetensors")
    assert (stopped["run"] / path).read_bytes() == (trained.run / path).read_bytes()


def test_a_resumed_run_has_one_measurement_for_each_step(stopped: dict[str, Any], trained: Any) -> None:
    def curve(run: Path) -> list[tuple[int, float]]:
        return [(one["step"], one["loss"]) for one in metrics(run) if one["kind"] == "train"]

    assert [step for step, _ in curve(stopped["run"])] == list(range(1, 61))
    assert curve(stopped["run"]) == curve(trained.run)


# Lock


def test_a_second_process_in_the_same_folder_fails_and_names_the_first(
    transduce: Any, trained: Any, tmp_path: Path
) -> None:
    run = copied(trained, tmp_path)
    with (run / ".lock").open("w") as lock:
        lock.write("4321")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = transduce(*trained.words, "--out", run, cwd=trained.folder)
    assert "is already being trained by process 4321" in complaint(outcome)
    assert transduce(*trained.words, "--out", run, cwd=trained.folder).code == 0


def test_translate_in_a_terminal_answers_each_line_at_once(transduce: Any, trained: Any) -> None:
    pipe = subprocess.PIPE
    with transduce.background(
        "translate", "-m", trained.run, cwd=trained.folder, stdin=(ends := os.openpty())[1], stdout=pipe
    ) as process:
        os.write(ends[0], b"babo\n")
        assert process.stdout.readline()
        os.write(ends[0], b"\x04")
        process.wait()
        os.close(ends[0])
        os.close(ends[1])


def test_a_run_that_read_names_of_columns_as_a_pair_is_resumed(
    tmp_path: Path, toy_pairs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, private_cache: Path
) -> None:
    lines = ["source\ttarget", *("\t".join(pair) for pair in toy_pairs)]
    write_lines(tmp_path / "train.tsv", lines)
    settings = {**TINY, "train.device": "cpu"}
    with monkeypatch.context() as older:
        older.setattr("transduce.files.pair_formats.is_header", lambda *_: False)
        train(tmp_path / "run", train=tmp_path / "train.tsv", settings={**settings, "train.steps": 2})
    train(tmp_path / "run", train=tmp_path / "train.tsv", settings={**settings, "train.steps": 3})
    assert (tmp_path / "run" / "checkpoints" / "step-3").exists()
