"""The processes that train one model together, as `torchrun` starts them: sums over all, one that writes, waiting.

Everything here does nothing where there is one process alone.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from transduce.errors import ConfigError, RunError

PATIENCE = timedelta(days=365)
"""How long processes wait for each other, as saving and validating may take their time; torchrun ends those who wait
for one that died."""


@dataclass(frozen=True)
class Processes:
    """This process among those of the run."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    @property
    def share(self) -> slice:
        """Which of many things are this process's: each takes one in turn, so shares of sorted things are alike."""
        return slice(self.rank, None, self.count)

    def total(self, *numbers: float) -> list[float]:
        """Each number summed over the processes."""
        if self.count == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64)
        _reduce(sums)
        return sums.tolist()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in some process."""
        return self.total(flag)[0] > 0

    def wait(self) -> None:
        """Go on when all processes have come here."""
        self.total(0)

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """The first process goes through what is inside before the others do; if it fails, they never start."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes; all travel in one flat buffer."""
        if self.count == 1:
            return
        flat = torch.cat([x.flatten() for x in tensors])
        _reduce(flat)
        sums = flat.split([x.numel() for x in tensors])
        torch._foreach_copy_(list(tensors), [part.view_as(x) for part, x in zip(sums, tensors, strict=True)])

    def gather(self, mine: list[Any]) -> list[Any]:
        """The shares of all processes put together in the order they were dealt; made of what JSON can carry."""
        if self.count == 1:
            return mine
        text = torch.frombuffer(bytearray(json.dumps(mine).encode()), dtype=torch.uint8)
        sizes = [int(n) for n in self.total(*(len(text) if rank == self.rank else 0 for rank in range(self.count)))]
        every = torch.zeros(sum(sizes), dtype=torch.uint8)
        places = every.split(sizes)
        places[self.rank].copy_(text)
        _reduce(every)
        shares = [json.loads(bytes(place.tolist())) for place in places]
        result: list[Any] = [None] * sum(map(len, shares))
        for rank, share in enumerate(shares):
            result[rank :: self.count] = share
        return result

    def device(self, chosen: torch.device) -> torch.device:
        """Where this process computes: each on its machine has a GPU of its own."""
        if self.count == 1 or chosen.type != "cuda":
            return chosen
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        if local >= torch.cuda.device_count():
            raise ConfigError(
                f"there are {torch.cuda.device_count()} GPUs here for {local + 1} processes or more; "
                "start one for each GPU (torchrun --nproc-per-node)"
            )
        torch.cuda.set_device(local)
        return torch.device("cuda", local)


ALONE = Processes()


@contextmanager
def join_processes() -> Iterator[Processes]:
    """The processes that torchrun started for this run; one alone where it was not used."""
    if "RANK" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        yield ALONE
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun keeps its store when it restarts processes: without a name for each attempt, they would call the dead
        # ones. (Between machines attempts are counted apart, so their number is no name there.)
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    yield Processes(rank, count)
    dist.destroy_process_group()  # not after an error: others may be gone, and nobody should wait for them


def _reduce(tensor: Tensor) -> None:
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        raise RunError(
            "another process of this run has ended, and said why; the same command goes on from the newest checkpoint, "
            "as torchrun does by itself with --max-restarts"
        ) from error
