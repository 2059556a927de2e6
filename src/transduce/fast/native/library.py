"""Loads the library of the wheel, or compiles decoder.c for this machine and keeps it in the cache folder."""

import ctypes
import fcntl
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from operator import mul
from pathlib import Path

from transduce.cache_folder import cache_folder
from transduce.disk import digest, write_atomically
from transduce.errors import ConfigError
from transduce.fast.native.prebuilt import DECODER, flags_of, load_prebuilt, source_digest
from transduce.fast.native.structs import check_layout
from transduce.files.texts import CLEAR_LINE, one_line
from transduce.models.weights_file import RawTensor, zeros

_PORTABLE = b"portable C"
_TIMEOUT = 120
"""Seconds that compilation may take."""

_log = logging.getLogger(__name__)


@cache
def load_library() -> ctypes.CDLL | None:
    """Load the library; None if there is none for this machine.

    That of the wheel is used if there is one. Otherwise, or if it has no instructions for 8-bit products, or if CC
    names a compiler, it is compiled for this machine.
    """
    if os.environ.get("TRANSDUCE_NATIVE") == "0":
        return None
    prebuilt = None if "CC" in os.environ else _usable(load_prebuilt())
    if prebuilt and prebuilt.instructions() != _PORTABLE:
        return prebuilt
    try:
        command = shlex.split(os.environ.get("CC") or "cc")  # it may have flags
        compiler = shutil.which(command[0])
        if compiler is None:
            if "CC" in os.environ:
                raise FileNotFoundError(f"CC is {command[0]}, but there is no such compiler")
            return prebuilt
        library = _cached_or_compiled([compiler, *command[1:]])
    except (ValueError, OSError, subprocess.SubprocessError) as error:
        if prebuilt is None:
            _log.warning("transduce: the engine native is not available: %s", _reason(error))
        return prebuilt
    return _usable(library)


def _usable(library: ctypes.CDLL | None) -> ctypes.CDLL | None:
    """The library, if it works on this machine."""
    if library is None:
        return None
    check_layout(library)
    library.instructions.restype = ctypes.c_char_p
    return library if _multiplies(library) else None


def _cached_or_compiled(compiler: Sequence[str]) -> ctypes.CDLL:
    machine = [source_digest(), platform.machine(), _processor(), *compiler, *flags_of(platform.machine())]
    name = f"native-{hashlib.sha256(' '.join(machine).encode()).hexdigest()[:16]}.so"
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _only_ours(folder):
            raise PermissionError(f"other users can write to {folder}")
        path = folder / name
        with _locked(folder):  # processes that start together compile it once
            if path.is_symlink() or path.exists():
                if not _only_ours(path):
                    raise PermissionError(f"other users can write to {path}")
                if _is_complete(path):
                    return ctypes.CDLL(str(path))
                _log.warning("transduce: %s is damaged; compiling it again", path)
            # Not in the cache, where it would stay if this process is killed.
            with tempfile.TemporaryDirectory() as work:
                compiled = _compile(compiler, Path(work) / name)
                write_atomically(_digest_of(path), digest(compiled).encode())
                staged = Path(shutil.copy(compiled, folder / f".{name}.{os.getpid()}.tmp"))
                staged.replace(path)  # atomic: another process may be loading it
        return ctypes.CDLL(str(path))
    except (ConfigError, OSError, subprocess.SubprocessError) as error:
        with tempfile.TemporaryDirectory() as work:
            library = ctypes.CDLL(str(_compile(compiler, Path(work) / name)))
        _log.warning("transduce: the cache cannot be used, so native is compiled at every start: %s", _reason(error))
        return library


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process compiles for this folder, if its file system has locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _only_ours(path: Path) -> bool:
    """Whether only this user and root can change a file or, in a folder, the files that belong to them."""
    status = path.stat() if path.is_dir() else path.lstat()
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX  # as /tmp is
    by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky
    plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return plain and status.st_uid in (0, os.geteuid()) and not by_others


def _is_complete(path: Path) -> bool:
    """Whether a library is as it was compiled; loading a truncated one would end the process."""
    recorded = _digest_of(path)
    return recorded.is_file() and recorded.read_bytes().decode("ascii", "replace") == digest(path)


def _digest_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _reason(error: Exception) -> str:
    """The error in one line; of a compiler, its last words."""
    output = error.stderr if isinstance(error, subprocess.CalledProcessError) else b""
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return one_line(lines[-1] if lines else str(error))


def _multiplies(library: ctypes.CDLL) -> bool:
    """Whether its matrix products are exact with the instructions of this processor."""
    from transduce.fast.native.weights import Memory

    # Arbitrary numbers between -127 and 127, of which the first makes the scale of every row 1.
    numbers = [[n * 48271 % 65521 % 255 - 127 for n in range(37 * row, 37 * row + 37)] for row in range(26)]
    x, weight = [[127, *row[1:]] for row in numbers[:5]], [[-127, *row[1:]] for row in numbers[5:]]
    x_array, y, memory = array("f", chain.from_iterable(x)), zeros("f", 5 * 21), Memory(library)
    content = memoryview(array("f", chain.from_iterable(weight))).cast("B")
    layer = memory.linear(RawTensor("F32", (21, 37), content), None)
    x_address, y_address = (ctypes.c_void_p(numbers.buffer_info()[0]) for numbers in (x_array, y))
    library.apply_linear(ctypes.byref(layer), x_address, 5, False, y_address)
    return y.tolist() == [sum(map(mul, row, weights)) for row in x for weights in weight]


def _compile(compiler: Sequence[str], path: Path) -> Path:
    """Compile the library into a file that only this user can change."""
    tune = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    command = [*compiler, *flags_of(platform.machine()), tune, str(DECODER), "-o", str(path), "-lm"]
    with _announced("compiling the engine native for this machine, only once"):
        subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT)
    path.chmod(0o644)
    return path


@contextmanager
def _announced(work: str) -> Iterator[None]:
    """Print to stderr what takes seconds; a terminal also shows the seconds so far, and is cleared in the end."""
    began, ended = time.monotonic(), threading.Event()
    stream, in_terminal = sys.stderr, bool(sys.stderr and sys.stderr.isatty())

    def show() -> None:
        seconds = f" ({time.monotonic() - began:.0f} s)" if in_terminal else ""
        start, end = (CLEAR_LINE, "") if in_terminal else ("", "\n")
        print(f"{start}transduce: {work} ...{seconds}", end=end, file=stream, flush=True)

    def count() -> None:
        while not ended.wait(1):
            show()

    show()
    counter = threading.Thread(target=count, daemon=True)
    if in_terminal:
        counter.start()
    try:
        yield
    finally:
        ended.set()
        if in_terminal:
            counter.join()
            print(CLEAR_LINE, end="", file=stream, flush=True)


def _processor() -> str:
    """The processor's features: a cache shared by different machines has one library for each kind."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
