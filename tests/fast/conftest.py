"""A faster interpreter for the kernels."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session", autouse=True)
def faster_interpreter() -> Iterator[None]:
    """Let Triton's interpreter replace the functions of its language once, rather than in every call of a function.

    It also computes every sum and product of integers again to detect overflow, but reports it only with TRITON_DEBUG.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or find_spec("triton") is None:
        yield
        return
    from triton.runtime import interpreter

    language = {"tl": interpreter.tl, "core": interpreter.tl.core}
    replaced = interpreter._patch_lang(SimpleNamespace(__globals__=language))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", lambda function: interpreter._LangPatchScope())
        options = interpreter.InterpreterOptions(sanitize_overflow=False)
        patch.setattr(interpreter.interpreter_builder, "options", options)
        yield
    replaced.restore()
