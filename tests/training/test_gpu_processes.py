"""Data parallelism and sharding on one GPU: one process (NCCL), and two processes that share it (gloo).

NCCL refuses two processes on one GPU, so several GPUs are not tested here: these tests run the code of
`distributed/` and `training/` on CUDA, and gloo in place of NCCL exchanges the tensors.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import free_port
from commands import metrics
from fault_injection import SmallRun, train_reference_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

FEW = {"model.dropout": 0.0, "train.steps": 16, "train.learning_rate_scale": 0.2, "train.device": "cuda"}
GLOO = "import os; os.environ['TRANSDUCE_DIST_BACKEND'] = 'gloo'"
ONE = """
import os
os.environ |= {{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "{port}"}}
"""
CASES = {
    "one process, sharded": (1, "", "true"),
    "one process of torchrun": (1, ONE, "false"),
    "one process of torchrun, sharded": (1, ONE, "true"),
    "two processes": (2, GLOO, "false"),
    "two processes, sharded": (2, GLOO, "true"),
}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def small(request: pytest.FixtureRequest, transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    folder = tmp_path_factory.mktemp(request.param)
    return train_reference_run(transduce, folder, **FEW, **{"train.precision": request.param})


@pytest.mark.parametrize(("processes", "before", "sharded"), CASES.values(), ids=CASES.keys())
def test_the_loss_curve_is_that_of_a_plain_run(
    transduce: Any, small: SmallRun, tmp_path: Path, processes: int, before: str, sharded: str
) -> None:
    words = [*small.arguments, "--set", f"train.shard={sharded}", "--out", tmp_path / "run"]
    before = before.format(port=free_port()) if before is ONE else before
    outcome = transduce(*words, cwd=small.folder, processes=processes, before=before)
    assert outcome.code == 0, outcome.err
    own, expected = (
        [record["loss"] for record in metrics(run) if record["kind"] == "train"]
        for run in (tmp_path / "run", small.reference)
    )
    assert len(own) == 16
    assert all(map(math.isfinite, own))
    half = "bfloat16" in small.folder.name
    assert own == pytest.approx(expected, rel=0.05 if half else 1e-3)


def test_more_processes_than_gpus_are_refused_with_nccl(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    count = torch.cuda.device_count() + 1
    outcome = transduce(*small.arguments, "--out", tmp_path / "run", cwd=small.folder, processes=count)
    assert outcome.code == 2
    assert f"there are {count - 1} GPUs for at least {count} processes" in outcome.err
