"""Adds to the build what pyproject.toml cannot say: the compiled library of engine native, in wheels for one platform.

`TRANSDUCE_PREBUILT=1 pip wheel .` compiles it with $CC (default: cc). Without the variable, the wheel is for any
platform, and the library is compiled on the user's machine. `make wheels` and cibuildwheel set the variable.
"""

import importlib.util
import os
import shlex
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PREBUILT = bool(os.environ.get("TRANSDUCE_PREBUILT"))
NATIVE = Path("transduce", "fast", "native")


def prebuilt_module() -> Any:
    """The module that compiles, without importing the package."""
    spec = importlib.util.spec_from_file_location("prebuilt", Path("src") / NATIVE / "prebuilt.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildWithLibrary(build_py):
    """Copies the package, then compiles the library into the copy."""

    def run(self) -> None:
        """Build."""
        super().run()
        if PREBUILT:
            module = prebuilt_module()
            target = Path(self.build_lib) / NATIVE / "prebuilt" / module.PREBUILT.name
            module.compile_prebuilt(shlex.split(os.environ.get("CC") or "cc"), target)


class PlatformWheel(bdist_wheel):
    """A wheel for every Python 3 of one platform: the library is loaded by ctypes and does not use Python's ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        """The tag of the wheel."""
        tag = super().get_tag()
        return ("py3", "none", tag[2]) if PREBUILT else tag


class PlatformDistribution(Distribution):
    """Says that the package has compiled files."""

    def has_ext_modules(self) -> bool:
        """See setuptools."""
        return PREBUILT


setup(distclass=PlatformDistribution, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})
