"""The start of a training process: what it imports, the GPU of its threads, and errors of the exchange with others."""

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from transduce.errors import RunError
from transduce.training import loader, processes


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


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_batches_are_loaded_for_a_gpu_with_and_without_a_number(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    chosen: list[int] = []
    stream = SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    # torch's own check of the device, without a GPU.
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(torch.cuda._get_device_index(device)))
    monkeypatch.setattr(loader, "computed_ahead", lambda *_: nullcontext(lambda number: number))
    fake = SimpleNamespace(device=torch.device(device), variation=None, plan=None, _batch=lambda *_: [])
    batches = loader.Loader.ahead(fake, 0)  # type: ignore[arg-type]
    assert next(batches) == []
    batches.close()
    assert chosen == ([1] if device == "cuda:1" else [])
