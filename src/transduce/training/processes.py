"""The processes that `torchrun` starts to train one model: collective operations and the main process, which writes.

With a single process, nothing is communicated.
"""

import json
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.distributed.rendezvous import rendezvous

from transduce.errors import ConfigError, RunError
from transduce.nn.device import pick_device

TIMEOUT = timedelta(days=365)
"""How long processes wait for each other, practically without limit: saving and validation may take long, and if one
process dies, torchrun ends the others."""


@dataclass(frozen=True)
class Processes:
    """The rank of this process and the number of processes of the run."""

    rank: int = 0
    count: int = 1
    grouped: bool = False
    """Whether torchrun started this process: then it communicates, even if it is the only one."""

    @property
    def communicates(self) -> bool:
        """Whether collective operations are executed."""
        return self.grouped or self.count > 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    @property
    def share(self) -> slice:
        """The items that belong to this process: every `count`-th one, so that shares of a sorted list are similar."""
        return slice(self.rank, None, self.count)

    def total(self, *numbers: float) -> list[float]:
        """The sum of each number over the processes."""
        if not self.communicates:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64)
        _reduce(sums)
        return sums.tolist()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in at least one process."""
        return self.total(flag)[0] > 0

    def of_main(self, number: float) -> float:
        """The number of the main process."""
        return self.total(number if self.is_main else 0)[0]

    def wait(self) -> None:
        """Wait until all processes have called this (a barrier)."""
        self.total(0)

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """The main process runs the context before the others do; if it fails, they do not run it."""
        if not self.is_main:
            self.wait()
        yield
        if self.is_main:
            self.wait()

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes; all are sent in one flat buffer."""
        if not self.communicates:
            return
        flat = torch.cat([x.flatten() for x in tensors])
        _reduce(flat)
        sums = flat.split([x.numel() for x in tensors])
        torch._foreach_copy_(list(tensors), [part.view_as(x) for part, x in zip(sums, tensors, strict=True)])

    def gather(self, mine: list[Any]) -> list[Any]:
        """Gather the shares of all processes, in the order before `share`; the items must be JSON values."""
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

    def require_same(self, tensors: Iterable[Tensor]) -> None:
        """Raise an error if these tensors differ between the processes: their sums would mean nothing."""
        if self.count == 1:
            return
        sums = [int(x.detach().contiguous().view(torch.uint8).sum(dtype=torch.int64)) for x in tensors]
        if any(other != sums for other in self.gather([sums])):
            raise RunError(
                "the processes begin with different weights; all machines need the same folder (--out), the same files "
                "and the same version of transduce and torch"
            )

    def device(self, name: str) -> torch.device:
        """The device of this name for this process: each process of a machine has its own GPU, unless gloo is used."""
        if not self.communicates or name.partition(":")[0] not in ("auto", "cuda"):
            return pick_device(name)
        local, gpus = int(os.environ.get("LOCAL_RANK", self.rank)), torch.cuda.device_count()
        if gpus and _backend() == "gloo":
            local %= gpus
        everyone = self.gather([(local, gpus)])  # all processes end, instead of waiting for one that did
        if not any(there for _, there in everyone):
            return pick_device(name)
        for process, there in everyone:
            if process >= there:
                raise ConfigError(
                    f"there are {there} GPUs for at least {process + 1} processes; "
                    "start one process per GPU (torchrun --nproc-per-node)"
                )
        torch.cuda.set_device(local)
        device = torch.device("cuda", local)
        self.all_reduce([torch.zeros(1, device=device)])  # NCCL begins at the first exchange: report its errors early
        return device


SINGLE_PROCESS = Processes()


@contextmanager
def join_processes() -> Iterator[Processes]:
    """The processes that torchrun started for this run; a single process if it was not used."""
    if "RANK" not in os.environ:
        yield SINGLE_PROCESS
        return
    store, rank, count = next(rendezvous("env://", timeout=TIMEOUT))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun keeps its store when it restarts processes: without a prefix for each attempt, they would connect to
        # the dead ones. (With several machines, each counts its own attempts, so the count cannot be a prefix.)
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    dist.init_process_group(_backend(), store=store, rank=rank, world_size=count, timeout=TIMEOUT)
    yield Processes(rank, count, grouped=True)
    dist.destroy_process_group()  # not after an error: others may have ended, and this would wait for them


@contextmanager
def group_of_one() -> Iterator[None]:
    """A process group of this process only, unless there is one: a model can be sharded only within a group."""
    if dist.is_initialized():
        yield
        return
    dist.init_process_group(_backend(), store=HashStore(), rank=0, world_size=1, timeout=TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _backend() -> str:
    """NCCL for tensors on GPUs and gloo for others; gloo for all if $TRANSDUCE_DIST_BACKEND says so.

    NCCL needs a GPU for each process; with gloo, several may share one, which is slow and meant for tests.
    """
    chosen = os.environ.get("TRANSDUCE_DIST_BACKEND")
    if chosen not in (None, "", "gloo", "nccl"):
        raise ConfigError(f"TRANSDUCE_DIST_BACKEND is {chosen}; use gloo or nccl")
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and chosen != "gloo" else "gloo"


def _reduce(tensor: Tensor) -> None:
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        if tensor.is_cuda:  # an error of NCCL; gloo notices processes that have ended
            raise RunError(f"the GPUs of this run cannot exchange data: {error}") from error
        raise RunError(
            "another process of this run has ended and printed its error; run the same command to resume from "
            "the newest checkpoint (torchrun --max-restarts does so automatically)"
        ) from error


class Interrupted(BaseException):
    """A signal arrived during work that can be interrupted."""


class StopRequest:
    """The signal that requested a stop, if there was one."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._interrupts = False

    def __bool__(self) -> bool:
        return self.signal is not None

    def take(self, number: int) -> None:
        """Record a signal; raise `Interrupted` if the current work can be interrupted."""
        self.signal = number
        if self._interrupts:
            raise Interrupted

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within this context, a signal raises `Interrupted` at once: for work that can be repeated without loss."""
        self._interrupts = True
        try:
            if self:
                raise Interrupted
            yield
        finally:
            self._interrupts = False
        if self:  # the exception may have been swallowed, as some modules do while they are imported
            raise Interrupted


@contextmanager
def stop_on_signals(*, many_processes: bool = False) -> Iterator[StopRequest]:
    """Within this context, the signals set the request instead of ending the process.

    With several processes, each receives Ctrl-C twice, from the terminal and from torchrun, so a second one is ignored.
    """
    request = StopRequest()

    def handle(number: int, _: FrameType | None) -> None:
        if not request:
            request.take(number)
        elif not many_processes:
            raise KeyboardInterrupt

    previous = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            previous[number] = signal.signal(number, handle)
        except ValueError:  # not the main thread: its owner decides when to stop
            break
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
