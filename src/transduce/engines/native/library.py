"""Compiles decoder.c for this machine and loads the library; it is kept in the cache folder."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from transduce.cache_folder import cache_folder
from transduce.engines.native.structs import check_layout

_HERE = Path(__file__).parent
_SOURCES = [_HERE / name for name in ("decoder.c", "search.h", "layers.h", "int8.h", "structs.h", "thread_pool.h")]
# Sums may be reordered, so that loops can be vectorised; infinities and NaNs keep their meaning.
_FLAGS = [
    *("-O3", "-shared", "-fPIC", "-pthread"),
    *("-fno-math-errno", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"),
]
_TIMEOUT = 120
"""Seconds that compilation may take."""


@cache
def load_library() -> ctypes.CDLL | None:
    """Load the library and compile it first if necessary; None if there is no compiler or it fails."""
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
    check_layout(library)
    library.instructions.restype = ctypes.c_char_p
    return library if _multiplies(library) else None


def _multiplies(library: ctypes.CDLL) -> bool:
    """Whether its matrix products are exact with the instructions of this processor."""
    from transduce.engines.native.weights import Memory

    random = np.random.default_rng(1)
    x, weight = (random.integers(-127, 128, size=(n, 37)).astype(np.float32) for n in (5, 21))
    x[:, 0], weight[:, 0] = 127, -127  # makes every scale 1
    y, memory = np.zeros((5, 21), np.float32), Memory(library)
    layer = memory.linear(weight, np.zeros(21, np.float32))
    library.apply_linear(ctypes.byref(layer), ctypes.c_void_p(x.ctypes.data), 5, ctypes.c_void_p(y.ctypes.data))
    return np.array_equal(y, x @ weight.T)


def _compile(compiler: str, path: Path) -> bool:
    """Compile the library; returns whether this succeeded."""
    tune = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    try:  # OSError: the file system may be read-only
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            compiled = Path(folder) / path.name
            command = [compiler, *_FLAGS, tune, str(_SOURCES[0]), "-o", str(compiled), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT)
            compiled.replace(path)  # atomic: another process may be loading it
            return True
    except (OSError, subprocess.SubprocessError):
        return False


def _processor() -> str:
    """The processor's features: a cache shared by different machines has one library for each kind."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
