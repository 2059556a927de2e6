"""The library of decoder.c that is part of a wheel, for machines without a compiler.

`setup.py` compiles it with `compile_prebuilt`, if TRANSDUCE_PREBUILT is set, for any processor of its architecture: the
code is in it several times, for different instructions, and the best that the processor has is used.
This file imports nothing of the package, so that `setup.py` can use it before anything is installed.
"""

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FLAGS = (
    # Not -O3, with which some versions of gcc take a minute; -fvect-cost-model vectorises as many loops as that does.
    *("-O2", "-ftree-vectorize", "-fvect-cost-model", "-shared", "-fPIC", "-pthread"),
    # Sums may be reordered, so that loops can be vectorised; infinities and NaNs keep their meaning.
    *("-fno-math-errno", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"),
)
_AVX512 = ("avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl")
_X86_64 = {"amx": (*_AVX512, "avx512vnni", "amx-tile", "amx-int8"), "avx512vnni": (*_AVX512, "avx512vnni"),
           "avxvnni": ("avx2", "fma", "avxvnni"), "avx512": _AVX512, "avx2": ("avx2", "fma"), "any": ()}  # fmt: skip
"""The features of the processor that each level of instructions needs, from the best level."""
_HERE = Path(__file__).parent
DECODER = _HERE / "decoder.c"
"""The source that includes the others."""
PREBUILT = _HERE / "prebuilt" / "libtransduce-native.so"


class _Library(ctypes.CDLL):
    """The functions of one level of instructions: `encode` is encode_avx2 in the library."""

    def __init__(self, path: str, level: str) -> None:
        super().__init__(path)
        self.level = level

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(f"{name}_{self.level}")


def flags_of(machine: str) -> tuple[str, ...]:
    """The flags of the compiler on a kind of machine; by default, it uses half of the width of AVX-512 in loops."""
    return (*FLAGS, "-mprefer-vector-width=512") if machine.startswith("x86_64") else FLAGS


def load_prebuilt(path: Path | None = None, level: str | None = None) -> _Library | None:
    """The library of the wheel; None if there is none, or if it is of other sources or for another system.

    `level` is that of this processor unless given.
    """
    path = path or PREBUILT
    if not path.is_file():
        return None
    try:
        library = ctypes.CDLL(str(path))
        library.source_digest.restype = library.level.restype = ctypes.c_char_p
        if library.source_digest().decode() != source_digest():
            return None
        return _Library(str(path), level or library.level().decode())
    except (OSError, AttributeError):
        return None


def compile_prebuilt(compiler: Sequence[str], path: Path) -> None:
    """Compile the library, with functions that tell what it was compiled from and the level of this processor."""
    machine = subprocess.run([*compiler, "-dumpmachine"], check=True, capture_output=True, text=True).stdout.strip()
    levels, chosen = levels_of(machine)
    code = f'{chosen}const char *source_digest(void) {{ return "{source_digest()}"; }}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        objects = [f"{work}/{level}.o" for level in levels]
        for (level, flags), target in zip(levels.items(), objects, strict=True):
            command = [*compiler, *flags_of(machine), *flags, f"-DLEVEL={level}", "-c", str(DECODER), "-o", target]
            subprocess.run(command, check=True)
        command = [*compiler, *FLAGS, *objects, "-x", "c", "-", "-o", str(path), "-lm", "-s"]
        subprocess.run(command, input=code.encode(), check=True)
    path.chmod(0o644)


def levels_of(machine: str) -> tuple[dict[str, list[str]], str]:
    """The flags of each level of instructions, and C code that returns the name of the best one of a processor."""
    if machine.startswith("x86_64"):
        tests = {
            name: [f'__builtin_cpu_supports("{feature}")' for feature in needed] for name, needed in _X86_64.items()
        }
        lines = [f'if ({" && ".join(["1", *test])}) return "{name}";' for name, test in tests.items()]
        flags = {name: [f"-m{feature}" for feature in needed] for name, needed in _X86_64.items()}
        return flags, _function("", "__builtin_cpu_init();", *lines)
    if machine.startswith("aarch64") and "linux" in machine:
        test = 'return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? "dotprod" : "any";'
        includes = "#include <sys/auxv.h>\n#include <asm/hwcap.h>\n"
        return {"dotprod": ["-march=armv8.2-a+dotprod"], "any": []}, _function(includes, test)
    if machine.startswith(("aarch64", "arm64")):  # every Mac with such a processor has these instructions
        return {"dotprod": ["-march=armv8.2-a+dotprod"]}, _function("", 'return "dotprod";')
    return {"any": []}, _function("", 'return "any";')


def _function(includes: str, *lines: str) -> str:
    return f"{includes}const char *level(void) {{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def source_digest() -> str:
    """Identifies the C sources of this installation."""
    sources = sorted([*_HERE.glob("*.c"), *_HERE.glob("*.h")])
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
