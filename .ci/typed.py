"""Check that mypy --strict and pyright accept the examples of docs/api.md, which use every public name: `make check`.

mypy must also find the mistakes of WRONG. pyright needs Node; without it, a line says that it was not run.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
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
WRONG = {
    'Translator.load(beam="4")': '"str"; expected "int"',
    "Translator.load(beem=4)": 'Unexpected keyword argument "beem"',
    'translator.translate("one", sample="no")': 'No overload variant of "translate"',
    'translator.hypotheses(["one"], nbest=None)': '"None"; expected "int"',
    'translator.stream(["one"], top_p="x")': '"str"; expected "float"',
    "from transduce import Nonsense": 'has no attribute "Nonsense"',
}
LARGE = ("torch", "numpy", "rich", "PIL", "transformers", "fastapi", "starlette", "pydantic", "typer", "pyarrow", "ray")
"""Reading their types takes most of the time of mypy, and nothing here depends on them."""


def run(*words: str | Path) -> str:
    """What a type checker prints."""
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src"), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def check_mypy(folder: Path) -> str:
    """What is wrong, or nothing."""
    user, config = folder / "user.py", folder / "mypy.ini"
    user.write_text(RIGHT + "\n".join(WRONG))
    skipped = (
        f"[mypy-{','.join(f'{name}.*' for name in LARGE)}]\nfollow_imports = skip\nfollow_imports_for_stubs = True\n"
    )
    config.write_text(f"[mypy]\nfollow_imports = silent\n{skipped}")
    printed = run("mypy", "--strict", "--config-file", config, "--cache-dir", folder, folder / "program.py", user)
    found = [line for line in printed.splitlines() if ": error: " in line]
    first = len(RIGHT.splitlines()) + 1
    expected = [(f"{user}:{first + number}:", message) for number, message in enumerate(WRONG.values())]
    right = len(found) == len(expected) and all(
        line.startswith(place) and message in line for line, (place, message) in zip(found, expected, strict=True)
    )
    return "" if right else f"mypy, in which only the lines from {first} of user.py are wrong:\n{printed}"


def check_pyright(folder: Path) -> str:
    """What is wrong, or nothing."""
    if not shutil.which("node"):
        print("pyright was not run: there is no Node (node)")
        return ""
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    printed = run("pyright", "--project", folder, "--pythonpath", sys.executable)
    return "" if "0 errors, " in printed else f"pyright:\n{printed}"


if __name__ == "__main__":
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "program.py"
        program.write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), encoding="utf-8")
        problems = check_pyright(Path(name)) + check_mypy(Path(name))
    sys.exit(problems or 0)
