"""A process that imports torch and all commands once, and forks for each command that `command_line.py` requests.

It reads requests from stdin, one line of JSON each, and answers each with a number on stdout. Its argument is the file
descriptor of a socket, over which the streams of a command that runs in the background are received.
"""

import ctypes
import gc
import json
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

HUGE_PAGE = 1 << 21
MADV_COLLAPSE = 25
"""Of Linux 6.1 and later; others refuse it."""
RUNNING = 1000
"""The answer instead of an exit code while a process is running."""
PRELOADED = (
    "numpy.ctypeslib",
    "sacrebleu.tokenizers.tokenizer_13a",
    "pydantic.type_adapter",
    "rich._emoji_codes",
    "typer._adapters",
    "transduce.corpora.check.check",
    "transduce.fast.native.engine",
    "transduce.fast.native.library",
    "transduce.translation.scores",
    "transduce.inspect.inspection",
    "transduce.interop.export_model",
    "transduce.serve.app",
    "transduce.training.api",
)
"""What commands import when they need it. Importing it once for all of them halves the time of a short command."""


def serve(streams: socket.socket) -> None:
    """Answer requests: with the exit code of a command, or with the id of a process in the background or its state."""
    features = import_module("transduce.features").FEATURES.values()
    commands = [reference for feature in features for reference in feature.commands.values()]
    preload(["transduce.cli.main", *PRELOADED, *(reference.partition(":")[0] for reference in commands)])
    os.fsync = lambda descriptor: None  # only a machine that loses power needs it, and it takes milliseconds
    answer(0)
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "poll" in request:
            ended, status = os.waitpid(request["poll"], os.WNOHANG)
            answer(os.waitstatus_to_exitcode(status) if ended else RUNNING)
        elif "files" in request:
            modes = (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)
            preload(request["preload"])
            fds = [os.open(path, mode) for path, mode in zip(request["files"], modes, strict=True)]
            children = [start_child(request, rank, fds) for rank in range(request["processes"])]
            close(fds)
            codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            answer(next((code for code in codes if code), 0))
        else:
            _, fds, _, _ = socket.recv_fds(streams, 1, 3)
            child = start_child(request, 0, fds)
            close(fds)
            answer(child)


def preload(names: Iterable[str]) -> None:
    """Import modules, unless their packages are not installed: only some commands need them."""
    if names := [name for name in names if name not in sys.modules]:
        for name in names:
            with suppress(ModuleNotFoundError):
                import_module(name)
        gc.collect()
        gc.freeze()  # otherwise the first collection of a child would copy all memory that it shares with this process
        use_huge_pages()


def use_huge_pages() -> None:
    """Back the memory of this process by pages of 2 MB, if the kernel can: forking then takes half the time."""
    if sys.platform != "linux":
        return
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, _, _, inode, *_ = line.split()
        if (permissions, inode) == ("rw-p", "0"):
            first, end = (int(address, 16) for address in addresses.split("-"))
            first, end = -(-first // HUGE_PAGE) * HUGE_PAGE, end // HUGE_PAGE * HUGE_PAGE
            if first < end:
                madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), MADV_COLLAPSE)


def answer(number: int) -> None:
    """Answer a request."""
    os.write(1, f"{number}\n".encode())


def close(fds: Sequence[int]) -> None:
    """Close file descriptors."""
    for fd in fds:
        os.close(fd)


def start_child(request: dict[str, Any], rank: int, fds: Sequence[int]) -> int:
    """Fork; the child becomes one of the requested processes."""
    if child := os.fork():
        return child
    os.chdir(request["cwd"])
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    close(fds)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    sys.argv = list(request["words"])
    if request["processes"] > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(request["processes"])}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(request["port"])}
    exec(request["before"], {"rank": rank})
    os._exit(become_program())


def become_program() -> int:
    """Run the module or script that is named in this process; returns its exit code.

    An orderly shutdown of torch would take a second.
    """
    code = 1
    try:
        if sys.argv[0].endswith(".py"):
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
