"""Build wheels with the compiled library of engine native into dist/: `make wheels`.

There is one for this machine and, if there is a cross compiler, one for the other of x86-64 and aarch64. auditwheel
gives the first its manylinux tag, if it is installed. Otherwise the tag follows from the versions of glibc's symbols
that the library uses. cibuildwheel builds the same wheels in the containers of manylinux, which run on older systems.
"""

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = "transduce/fast/native/prebuilt/libtransduce-native.so"
OLDEST = 17
"""manylinux_2_17 is the oldest that pip of today's Python versions knows by this name."""


def build(machine: str, compiler: str) -> Path:
    """Build the wheel for Linux on a machine into dist/."""
    with tempfile.TemporaryDirectory() as work:
        environment = os.environ | {"TRANSDUCE_PREBUILT": "1", "CC": compiler}
        environment["_PYTHON_HOST_PLATFORM"] = f"linux-{machine}"  # what sysconfig says the platform is
        shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--wheel-dir", work, str(ROOT)], check=True, env=environment)
        (wheel,) = Path(work).glob("*.whl")
        if shutil.which("auditwheel") and machine == platform.machine():
            subprocess.run(["auditwheel", "repair", str(wheel), "--wheel-dir", str(ROOT / "dist")], check=True)
            return max((ROOT / "dist").glob(f"*{machine}.whl"), key=lambda path: path.stat().st_mtime)
        return retag(wheel, f"manylinux_2_{glibc(wheel)}_{machine}")


def glibc(wheel: Path) -> int:
    """The oldest glibc 2.x that has all symbols that the library of a wheel uses."""
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(LIBRARY)
    return max(OLDEST, *map(int, re.findall(rb"GLIBC_2\.(\d+)", content)))


def retag(wheel: Path, tag: str) -> Path:
    """Copy a wheel to dist/ with another platform tag."""
    old = wheel.stem.rpartition("-")[2]
    new = ROOT / "dist" / wheel.name.replace(old, tag)
    new.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as target:
        entries = {info.filename: source.read(info) for info in source.infolist()}
        (name,) = [name for name in entries if name.endswith(".dist-info/WHEEL")]
        record = name.replace("/WHEEL", "/RECORD")
        entries[name] = entries[name].replace(old.encode(), tag.encode())
        digest = base64.urlsafe_b64encode(hashlib.sha256(entries[name]).digest()).rstrip(b"=").decode()
        line = f"{name},sha256={digest},{len(entries[name])}"
        entries[record] = re.sub(rf"(?m)^{re.escape(name)},.*$", line, entries[record].decode()).encode()
        for info in source.infolist():
            target.writestr(info, entries[info.filename])
    return new


if __name__ == "__main__":
    here = platform.machine()
    compilers = {here: os.environ.get("CC", "cc")}
    for other in {"x86_64", "aarch64"} - {here}:
        if cross := shutil.which(f"{other}-linux-gnu-gcc"):
            compilers[other] = cross
        else:
            print(f"no wheel for {other}: there is no {other}-linux-gnu-gcc")
    for machine, compiler in compilers.items():
        wheel = build(machine, compiler)
        subprocess.run(
            [sys.executable, str(ROOT / ".ci" / "sbom.py"), str(wheel)], check=True, stdout=subprocess.DEVNULL
        )
        print(f"built {wheel.relative_to(ROOT)}, with its SBOM inside and beside it")
