"""What a training process loads before its first step."""

import subprocess
import sys


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
