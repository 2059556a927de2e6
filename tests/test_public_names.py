"""`import transduce`: its public names."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

import pytest

import transduce

FUNCTIONS: list[Callable[..., Any]] = [
    transduce.train,
    transduce.score,
    transduce.compare,
    transduce.translate_document,
] + [
    getattr(method, "__func__", method)
    for owner in (transduce.Translator, transduce.Generator, transduce.Transcriber)
    for name, method in vars(owner).items()
    if inspect.isfunction(getattr(method, "__func__", method)) and (name == "__init__" or not name.startswith("_"))
]


def classes(hint: Any) -> Iterator[type]:
    """The classes of this package that a type hint names."""
    if isinstance(hint, type) and hint.__module__.startswith("transduce."):
        yield hint
    for part in get_args(hint):
        yield from classes(part)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_classes_of_public_signatures_are_public(function: Callable[..., Any]) -> None:
    for hint in get_type_hints(function, localns={"Model": transduce.Model}).values():
        for named in classes(hint):
            assert named.__name__ in transduce.__all__
            assert getattr(transduce, named.__name__) is named


def test_public_names_are_sorted_and_there() -> None:
    assert transduce.__all__ == sorted(transduce.__all__)
    assert all(getattr(transduce, name).__name__ == name for name in transduce.__all__)
    assert dir(transduce) == sorted([*transduce.__all__, "__version__"])
    assert issubclass(transduce.ConfigError, transduce.TransduceError)
    with pytest.raises(AttributeError, match="'transduce' has no attribute 'nonsense'"):
        transduce.nonsense  # noqa: B018


def test_importing_the_package_or_its_options_does_not_import_torch() -> None:
    code = "import sys; from transduce import SearchConfig, TransduceError; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
