"""Several processes that train one model: the same loss curve as a single process, and the same robustness."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from command_line import PATIENCE, free_port
from fault_injection import FULL, SmallRun, assert_intact, pause_first_call, train_reference_run, wait_for
from safetensors.torch import load_file

from transduce.training.checkpoint import list_checkpoints, newest_step

# Without dropout, whose masks depend on the number of processes, and few enough steps that rounding errors stay small.
STEPS = 8
DETERMINISTIC = {"model.dropout": 0.0, "train.steps": STEPS, "train.learning_rate_scale": 0.2}


@pytest.fixture(scope="module")
def small(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return train_reference_run(transduce, tmp_path_factory.mktemp("small"), **DETERMINISTIC)


def curve(run: Path, kind: str = "train", key: str = "loss") -> list[float]:
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record[key] for record in records if record["kind"] == kind]


def assert_equal_up_to_rounding(run: Path, expected: Path) -> None:
    assert len(curve(expected)) == STEPS
    assert curve(run) == pytest.approx(curve(expected), rel=1e-4)
    assert curve(run, "valid") == pytest.approx(curve(expected, "valid"), rel=1e-3)
    assert curve(run, "valid", "bleu") == pytest.approx(curve(expected, "valid", "bleu"), abs=0.5)
    weights, other = (load_file(path / "model/model.safetensors") for path in (run, expected))
    assert weights.keys() == other.keys()
    # The gradient of the keys' biases is 0 up to rounding, which Adam amplifies.
    for name in (name for name in weights if not name.endswith("bias")):
        assert (weights[name] - other[name]).abs().max() < 2e-3, name


SHARES: dict[str, tuple[int, list[str]]] = {
    "1 sharded": (1, ["train.shard=true"]),
    "2": (2, []),
    "2 sharded": (2, ["train.shard=true"]),
    "3 with 2 batches per step": (3, ["train.accumulate=2"]),
}
if FULL:
    SHARES |= {"4": (4, []), "4 sharded": (4, ["train.shard=true"])}


@pytest.mark.parametrize(("processes", "changes"), SHARES.values(), ids=SHARES.keys())
def test_several_processes_train_the_same_model_as_one(
    transduce: Any, small: SmallRun, tmp_path: Path, processes: int, changes: list[str]
) -> None:
    arguments = [*small.arguments, *(word for change in changes for word in ("--set", change))]
    expected = small.reference
    if "train.accumulate=2" in changes:
        expected = tmp_path / "single"
        assert transduce(*arguments, "--out", expected, cwd=small.folder).code == 0
    outcome = transduce(*arguments, "--out", tmp_path / "run", cwd=small.folder, processes=processes)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("finished: ") == 1  # only the main process prints
    assert_intact(tmp_path / "run")
    assert_equal_up_to_rounding(tmp_path / "run", expected)


# What a GPU that several processes share does: gloo exchanges copies in the memory of the CPU.
THROUGH_CPU = "import transduce.training.sharded as sharded; sharded._uses_cpu = lambda device: True"
AS_TORCHRUN_DOES = """
import os
os.environ |= {{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "{port}"}}
"""


def test_shards_exchanged_through_the_cpu_train_the_same_model(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    words = [*small.arguments, "--set", "train.shard=true", "--out", tmp_path / "run"]
    outcome = transduce(*words, cwd=small.folder, processes=2, before=THROUGH_CPU)
    assert outcome.code == 0, outcome.err
    assert_equal_up_to_rounding(tmp_path / "run", small.reference)


def test_torchrun_with_one_process_trains_the_same_model(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    words = [*small.arguments, "--out", tmp_path / "run"]
    outcome = transduce(*words, cwd=small.folder, before=AS_TORCHRUN_DOES.format(port=free_port()))
    assert outcome.code == 0, outcome.err
    assert_equal_up_to_rounding(tmp_path / "run", small.reference)


@pytest.mark.parametrize("sharded", ["false", "true"])
def test_a_run_can_be_resumed_with_another_number_of_processes(
    transduce: Any, small: SmallRun, tmp_path: Path, sharded: str
) -> None:
    for steps, processes in ((3, 3), (6, 2), (STEPS, 1)):
        arguments = [*small.arguments, "--set", f"train.steps={steps}"]
        if processes > 1:
            arguments += ["--set", f"train.shard={sharded}"]
        outcome = transduce(*arguments, "--out", tmp_path / "run", cwd=small.folder, processes=processes)
        assert outcome.code == 0, outcome.err
    assert curve(tmp_path / "run") == pytest.approx(curve(small.reference), rel=1e-4)


def test_a_batch_may_have_fewer_pairs_than_there_are_processes(transduce: Any, tmp_path: Path) -> None:
    few = {"train.batch_tokens": 8, "train.steps": 6, "train.save_every": 6, "model.dropout": 0.0}
    small = train_reference_run(transduce, tmp_path, **few)
    outcome = transduce(*small.arguments, "--out", tmp_path / "run", cwd=tmp_path, processes=4)
    assert outcome.code == 0, outcome.err
    assert curve(tmp_path / "run") == pytest.approx(curve(small.reference), rel=1e-4)


OUT_OF_MEMORY_IN_ONE = """
import torch
from transduce.training.learner import Compute
compute = Compute.__call__
def limited(self, batch):
    if rank == 1 and len(batch["tgt"].ids_N) > 150:
        raise torch.OutOfMemoryError("injected")
    return compute(self, batch)
Compute.__call__ = limited
"""


def test_if_one_process_is_out_of_memory_all_split_batches(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    command = (*small.arguments, "--out", tmp_path / "run")
    outcome = transduce(*command, cwd=small.folder, processes=2, before=OUT_OF_MEMORY_IN_ONE)
    assert outcome.code == 0, outcome.err
    assert "out of memory: from now on, batches of 512 tokens are split into 2 parts" in outcome.err
    assert curve(tmp_path / "run") == pytest.approx(curve(small.reference), rel=1e-4)


@pytest.mark.parametrize(
    ("owner", "name", "interrupted"),
    [
        ("transduce.translation.task:Validation", "_sums", True),
        ("transduce.training.checkpoint", "save_model", False),
        ("transduce.training.steps:Steps", "gradients", False),
    ],
)
def test_a_signal_to_one_process_stops_all(
    transduce: Any, small: SmallRun, tmp_path: Path, owner: str, name: str, interrupted: bool
) -> None:
    ready, command = tmp_path / "ready", (*small.arguments, "--out", tmp_path / "run")
    before = "if rank == 0:\n" + indent(pause_first_call(owner, name, ready), "    ")
    transduce.begin(*command, cwd=small.folder, processes=2, before=before)
    os.kill(int(wait_for(ready)), signal.SIGTERM)
    if not interrupted:
        ready.unlink()
    outcome = transduce.end()
    assert outcome.code == 128 + signal.SIGTERM, outcome.err
    assert "stopped at step" in outcome.err
    assert_intact(tmp_path / "run")
    assert transduce(*command, cwd=small.folder, processes=2).code == 0
    assert curve(tmp_path / "run") == pytest.approx(curve(small.reference), rel=1e-4)


def test_processes_wait_for_each_other_without_a_time_limit(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    """The time limit of the collective operations is a year, longer than any save."""
    before = """
import torch.distributed as dist
real_init = dist.init_process_group
def checked(*arguments, **options):
    assert options["timeout"].days >= 365
    real_init(*arguments, **options)
dist.init_process_group = checked
"""
    ready = tmp_path / "ready"
    before += pause_first_call("transduce.training.checkpoint", "save_model", ready)  # only the main process writes
    transduce.begin(*small.arguments, "--out", tmp_path / "run", cwd=small.folder, processes=2, before=before)
    wait_for(ready)
    time.sleep(0.2)
    ready.unlink()
    outcome = transduce.end()
    assert outcome.code == 0, outcome.err


def test_when_a_process_is_killed_the_others_end_and_the_run_can_be_resumed(
    transduce: Any, small: SmallRun, tmp_path: Path
) -> None:
    ready, command = tmp_path / "ready", (*small.arguments, "--out", tmp_path / "run")
    code = pause_first_call("transduce.training.milestones", "prune", ready)  # only the main process writes
    transduce.begin(*command, cwd=small.folder, processes=2, before=code)
    os.kill(int(wait_for(ready)), signal.SIGKILL)
    outcome = transduce.end()
    assert outcome.code == -9
    assert "transduce: another process of this run has ended" in outcome.err.splitlines()[-1]
    assert newest_step(tmp_path / "run/checkpoints") == 4
    resumed = transduce(*command, cwd=small.folder, processes=2)
    assert resumed.code == 0, resumed.err
    assert f"resuming from {tmp_path}/run/checkpoints/step-4" in resumed.err
    assert_equal_up_to_rounding(tmp_path / "run", small.reference)


# Started by torchrun


@contextmanager
def torchrun(small: SmallRun, run: Path, processes: int, *options: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), *options]
    command += ["--master-port", str(free_port()), "-m", "transduce", *small.arguments, "--out", str(run)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=small.folder, env=environment, stderr=subprocess.PIPE, text=True) as agent:
        try:
            yield agent
        finally:
            if agent.poll() is None:
                for process in (*ranks_of(agent.pid), agent.pid):
                    os.kill(process, signal.SIGKILL)


def until_step(step: int, run: Path, agent: "subprocess.Popen[str]") -> None:
    """Wait until the run has a checkpoint of this step or a later one."""
    limit = time.monotonic() + PATIENCE
    while newest_step(run / "checkpoints") < step:
        assert time.monotonic() < limit
        assert agent.poll() is None, agent.communicate()[1]
        time.sleep(0.005)


def ranks_of(torchrun: int) -> list[int]:
    """The processes that torchrun has started."""
    processes = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue  # it has ended
        if parent == torchrun:
            processes.append(int(status.parent.name))
    return sorted(processes)


@pytest.mark.skipif(not FULL, reason="starts new interpreters; run by `make faults`")
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes through /proc")
def test_when_a_rank_is_killed_torchrun_restarts_and_the_run_resumes(small: SmallRun, tmp_path: Path) -> None:
    rng = random.Random(2)
    for attempt in range(10):
        run = tmp_path / f"run-{attempt}"
        with torchrun(small, run, 4, "--max-restarts", "3") as agent:
            until_step(4, run, agent)
            os.kill(rng.choice(ranks_of(agent.pid)), signal.SIGKILL)
            _, err = agent.communicate(timeout=PATIENCE)
        assert agent.returncode == 0, err
        resumed = [int(step) for step in re.findall(r"resuming from .*/checkpoints/step-(\d+)", err)]
        assert len(resumed) == 1, err
        assert resumed[0] >= 4
        assert_intact(run)
        assert_equal_up_to_rounding(run, small.reference)
        shutil.rmtree(run)


@pytest.mark.skipif(not FULL, reason="starts new interpreters; run by `make faults`")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_to_torchrun_saves_and_ends_the_run(small: SmallRun, tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    with torchrun(small, run, 2) as agent:
        until_step(4, run, agent)
        agent.send_signal(number)
        _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode != 0
    stopped = re.search(r"stopped at step (\d+) ", err)
    assert stopped, err
    assert list_checkpoints(run / "checkpoints")[-1].name == f"step-{stopped[1]}"
    with torchrun(small, run, 2) as agent:
        _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, err
    assert curve(run) == pytest.approx(curve(small.reference), rel=1e-4)
