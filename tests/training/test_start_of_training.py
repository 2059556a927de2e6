"""What a training process loads before its first step, and how it tells errors of the exchange between processes."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from transduce.errors import RunError
from transduce.training import processes


def test_a_single_process_does_not_import_fsdp() -> None:
    code = """
import sys, torch
from transduce.training import loop
from transduce.training.sharded import gather_tensor, local_shard, shard_like
x = torch.ones(2)
assert gather_tensor(x) is x and local_shard(x) is x and shard_like(x, x) is x
slow = [name for name in sys.modules if name.startswith(("torch.distributed.fsdp", "torch.distributed.tensor"))]
sys.exit(", ".join(slow[:3]) or 0)
"""
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize(
    ("is_cuda", "message"),
    [(True, "the GPUs of this run cannot exchange data: no memory"), (False, "another process of this run has ended")],
)
def test_an_error_of_nccl_is_not_taken_for_the_end_of_another_process(
    monkeypatch: pytest.MonkeyPatch, is_cuda: bool, message: str
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(dist, "all_reduce", fail)
    with pytest.raises(RunError, match=message):
        processes._reduce(SimpleNamespace(is_cuda=is_cuda))  # type: ignore[arg-type]
