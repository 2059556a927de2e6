"""The template for SLURM: what it starts, and two nodes as two groups of processes on this machine."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import PATIENCE, free_port
from commands import metrics
from fault_injection import FULL, train_reference_run
from torch.distributed.run import get_args_parser

TEMPLATE = Path(__file__).parents[2] / "docs/templates/train.sbatch"
# Runs the command once for each node, at the same time, as srun does; ends with the code of one that failed.
SRUN = """#!{python}
import os, subprocess, sys
words = [word for word in sys.argv[1:] if not word.startswith("--kill")]
nodes = [subprocess.Popen(words, env={{**os.environ, "SLURM_NODEID": str(n)}}) for n in range({nodes})]
codes = [node.wait() for node in nodes]
sys.exit(max(codes, key=abs))
"""
RECORD = """#!{python}
import json, os, sys
file = open({log!r} + os.environ["SLURM_NODEID"], "w")
json.dump([sys.argv[1:], os.environ["OMP_NUM_THREADS"]], file)
"""
TORCHRUN = """#!/bin/sh
exec {python} -m torch.distributed.run --local-addr 127.0.0.1 "$@"
"""


def start(folder: Path, torchrun: str, words: list[str], cwd: Path, **variables: str) -> "subprocess.Popen[str]":
    """Start the template with programs in place of SLURM's, and of torchrun."""
    programs = {"scontrol": "#!/bin/sh\necho 127.0.0.1\necho node-2\n", "srun": SRUN, "torchrun": torchrun}
    folder.mkdir()
    for name, text in programs.items():
        path = folder / name
        path.write_text(text.format(python=sys.executable, nodes=2, log=str(folder / "log-")) if "{" in text else text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    job = {"SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "77"}
    environment = {**os.environ, **job, **variables, "PATH": f"{folder}:{os.environ['PATH']}"}
    environment.pop("OMP_NUM_THREADS", None)
    pipe = subprocess.PIPE
    return subprocess.Popen(["bash", TEMPLATE, *words], cwd=cwd, env=environment, stderr=pipe, stdout=pipe, text=True)


def test_the_template_starts_torchrun_on_each_node(tmp_path: Path) -> None:
    words = ["recipe.toml", "--out", "runs/a b"]
    job = start(tmp_path / "bin", RECORD, words, tmp_path, SLURM_GPUS_ON_NODE="4", SLURM_CPUS_PER_TASK="16")
    _, err = job.communicate(timeout=PATIENCE)
    assert (job.returncode, err) == (0, "")
    for node in ("0", "1"):
        arguments, threads = json.loads((tmp_path / f"bin/log-{node}").read_text())
        parsed = get_args_parser().parse_args(arguments)
        assert (parsed.nnodes, parsed.nproc_per_node, parsed.max_restarts) == ("2", "4", 3)
        assert (parsed.rdzv_backend, parsed.rdzv_endpoint, parsed.rdzv_id) == ("c10d", "127.0.0.1:29500", "77")
        assert (parsed.module, parsed.training_script) == (True, "transduce")
        assert parsed.training_script_args == ["train", *words]
        assert threads == "4"


def test_the_template_asks_slurm_for_one_task_per_node_and_a_signal() -> None:
    options = [line.split()[1] for line in TEMPLATE.read_text().splitlines() if line.startswith("#SBATCH")]
    assert {"--ntasks-per-node=1", "--requeue", "--signal=TERM@120"} <= set(options)


@pytest.mark.skipif(not FULL, reason="starts new interpreters; run by `make faults`")
@pytest.mark.parametrize("sharded", ["false", "true"])
def test_two_nodes_train_the_same_model_as_one_process(transduce: Any, tmp_path: Path, sharded: str) -> None:
    steps = {"train.steps": 8, "train.save_every": 4, "model.dropout": 0.0, "train.learning_rate_scale": 0.2}
    small = train_reference_run(transduce, tmp_path, **steps)
    own = [*small.arguments[1:], "--out", "run", "--set", f"train.shard={sharded}"]
    variables = {"PROCESSES_PER_NODE": "2", "RENDEZVOUS_PORT": str(free_port())}
    job = start(tmp_path / "bin", TORCHRUN, own, tmp_path, **variables)
    _, err = job.communicate(timeout=3 * PATIENCE)
    assert job.returncode == 0, err
    assert "and 3 other processes" in err
    several, one = (
        [record["loss"] for record in metrics(tmp_path / name) if record["kind"] == "train"]
        for name in ("run", "reference")
    )
    assert several == pytest.approx(one, rel=1e-4)
