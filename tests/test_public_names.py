"""`import transduce`: its public names, and what a user's type checker sees of them."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import transduce

ROOT = Path(__file__).parents[1]
FUNCTIONS: list[Callable[..., Any]] = [transduce.train, transduce.score, transduce.compare] + [
    getattr(method, "__func__", method)
    for owner in (transduce.Translator, transduce.Generator, transduce.Transcriber)
    for name, method in vars(owner).items()
    if inspect.isfunction(getattr(method, "__func__", method)) and (name == "__init__" or not name.startswith("_"))
]
RIGHT = """
from transduce.search.options import SearchConfig, SearchOptions
from transduce.translation.translator import Translator
from transduce import train
options: SearchOptions = {"beam": 4, "top_p": 0.9}
translator = Translator.load("run", beam=4, max_length=None)
text: str = translator.translate("one", beam=1)
texts: list[str] = translator.translate(["one", "two"], **options)
score: float = translator.hypotheses(["one"], nbest=2, length_penalty=1)[0][0].score
finished: bool = train("run").finished
config: SearchConfig = translator.config
"""


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


@pytest.mark.skipif(not find_spec("mypy"), reason="needs mypy")
def test_a_type_checker_knows_the_options(tmp_path: Path) -> None:
    wrong = {
        'Translator.load(beam="4")': '"str"; expected "int"',
        "Translator.load(beem=4)": 'Unexpected keyword argument "beem"',
        'translator.translate("one", sample="no")': 'No overload variant of "translate"',
        'translator.hypotheses(["one"], nbest=None)': '"None"; expected "int"',
        'translator.stream(["one"], top_p="x")': '"str"; expected "float"',
        "from transduce import Nonsense": 'has no attribute "Nonsense"',
    }
    script, config = tmp_path / "user.py", tmp_path / "mypy.ini"
    script.write_text(RIGHT + "\n".join(wrong))
    # Reading all types would take a minute, and nothing here depends on these.
    parts = ["data", "distributed", "documents", "engines", "evaluation", "models", "nn", "runs", "tasks", "text"]
    names = ["torch", "numpy", "rich", "PIL", *(f"transduce.{part}" for part in parts)]
    skip = "follow_imports = skip\nfollow_imports_for_stubs = True\n"
    skipped = "".join(f"[mypy-{name}.*]\n{skip}" for name in names)
    loading = "[mypy-transduce.models.loaded]\nfollow_imports = silent\n"
    config.write_text(f"[mypy]\nfollow_imports = silent\n{skipped}{loading}")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", config, "--cache-dir", tmp_path, script]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    first = len(RIGHT.splitlines()) + 1
    assert [int(line.split(":")[1]) for line in errors] == list(range(first, first + len(wrong))), done.stdout
    for line, message in zip(errors, wrong.values(), strict=True):
        assert message in line
