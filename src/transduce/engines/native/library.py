"""The compiled form of decoder.c, made once for this machine and kept in the cache folder."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from transduce.cache_folder import cache_folder

_HERE = Path(__file__).parent
_SOURCES = [_HERE / "decoder.c", _HERE / "int8.h"]
# Sums may be taken in another order, so that loops become vector instructions; infinities keep their meaning.
_FLAGS = ["-O3", "-shared", "-fPIC", "-fno-math-errno", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"]
_SECONDS = 120


@cache
def load_library() -> ctypes.CDLL | None:
    """The library, compiled if need be; None where there is no compiler that can."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or os.environ.get("TRANSDUCE_NATIVE") == "0":
        return None
    machine = [platform.machine(), _processor(), compiler, *_FLAGS]
    content = b"".join(source.read_bytes() for source in _SOURCES) + "\0".join(machine).encode()
    path = cache_folder() / f"native-{hashlib.sha256(content).hexdigest()[:16]}.so"
    if not path.exists() and not _compile(compiler, path):
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    library.instructions.restype = ctypes.c_char_p
    return library


def _compile(compiler: str, path: Path) -> bool:
    """Whether it went well; with several threads where the compiler knows OpenMP."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    tune = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    for threads in (["-fopenmp"], []):
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            command = [compiler, *_FLAGS, tune, *threads, str(_SOURCES[0]), "-o", str(made), "-lm"]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
            except (OSError, subprocess.SubprocessError):
                continue
            made.replace(path)  # all at once: another process may be loading it
            return True
    return False


def _processor() -> str:
    """What the instructions depend on, so that a cache shared by several machines holds one library for each kind."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
