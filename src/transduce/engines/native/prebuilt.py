"""The library of decoder.c that is part of a wheel, for machines without a compiler.

`setup.py` compiles it with `compile_prebuilt`, if TRANSDUCE_PREBUILT is set, for any processor of its architecture.
This file imports nothing of the package, so that `setup.py` can use it before anything is installed.
"""

import ctypes
import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

FLAGS = (
    *("-O3", "-shared", "-fPIC", "-pthread"),
    # Sums may be reordered, so that loops can be vectorised; infinities and NaNs keep their meaning.
    *("-fno-math-errno", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"),
)
_HERE = Path(__file__).parent
PREBUILT = _HERE / "prebuilt" / "libtransduce-native.so"


def load_prebuilt() -> ctypes.CDLL | None:
    """The library of the wheel; None if there is none, or if it is of other sources or for another system."""
    if not PREBUILT.is_file():
        return None
    try:
        library = ctypes.CDLL(str(PREBUILT))
        library.source_digest.restype = ctypes.c_char_p
        return library if library.source_digest().decode() == source_digest() else None
    except (OSError, AttributeError):
        return None


def compile_prebuilt(compiler: Sequence[str], path: Path) -> None:
    """Compile the library, with a function that tells what it was compiled from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = f'const char *source_digest(void) {{ return "{source_digest()}"; }}\n'
    sources = [str(_HERE / "decoder.c"), "-x", "c", "-"]
    subprocess.run([*compiler, *FLAGS, *sources, "-o", str(path), "-lm", "-s"], input=code.encode(), check=True)
    path.chmod(0o644)


def source_digest() -> str:
    """Identifies the C sources of this installation."""
    sources = sorted([*_HERE.glob("*.c"), *_HERE.glob("*.h")])
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
