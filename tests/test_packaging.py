"""`transduce doctor` and `transduce init`, shell completion, and the Dockerfile."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import complaint, without_compiling
from mirror import Fault, Mirror
from packaging.requirements import Requirement
from toy_run import TINY, as_sets
from typer.main import get_command

from transduce.cli.main import app
from transduce.environment import EXTRAS
from transduce.fast.native.library import load_library
from transduce.training.recipe import load_recipe

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# transduce doctor


def findings(outcome: Any) -> dict[str, Any]:
    return {finding["name"]: finding for finding in json.loads(outcome.out)}


def test_doctor_describes_the_machine_and_translates(transduce: Any, tmp_path: Path) -> None:
    outcome = transduce("doctor", "--json", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    found = findings(outcome)
    named = ("torch", "processor", "memory", "cache folder", "triton", "compiler", "native", "training", "translation")
    assert set(named) <= found.keys()
    assert not any(finding["problem"] for finding in found.values())
    assert os.environ["TRANSDUCE_CACHE"] in found["cache folder"]["text"]
    assert found["translation"]["text"].startswith(("native (8-bit", "gpu (", "plain ("))


@pytest.mark.parametrize(
    ("environment", "name", "text", "problem"),
    [
        ({"TRANSDUCE_NATIVE": "0"}, "native", "not used: TRANSDUCE_NATIVE is 0", False),
        ({"CC": "no-such-cc"}, "compiler", "CC is no-such-cc, but there is no such compiler", True),
        ({"CC": "false"}, "native", "not available: the engine native is not available: ", True),
        ({"TRANSDUCE_CACHE": "/proc/nothing"}, "cache folder", "cannot be written: ", True),
    ],
)
def test_doctor_tells_what_does_not_work_and_why(
    transduce: Any, tmp_path: Path, environment: dict[str, str], name: str, text: str, problem: bool
) -> None:
    own_cache = {"TRANSDUCE_CACHE": str(tmp_path / "cache")}
    before = f"import os; os.environ |= {own_cache | environment}\n"
    if "CC" not in environment:
        before += without_compiling()
    outcome = transduce("doctor", "--json", cwd=tmp_path, before=before)
    assert outcome.code == int(problem)
    found = findings(outcome)[name]
    assert found["text"].startswith(text)
    assert found["problem"] == problem


@pytest.mark.parametrize(
    ("prebuilt", "advice"), [(True, "needed only for a GPU, the engine native is compiled"), (False, "install one")]
)
def test_doctor_advises_a_compiler_only_if_native_is_not_compiled(
    transduce: Any, tmp_path: Path, prebuilt: bool, advice: str
) -> None:
    compiled = load_library()
    if compiled is None:
        pytest.skip("no C compiler")
    before = f"""
import ctypes, os
from transduce.fast.native import library
os.environ.pop("CC", None)
os.environ["PATH"] = ""
library.load_prebuilt = lambda: ctypes.CDLL({compiled._name!r}) if {prebuilt} else None
"""
    found = findings(transduce("doctor", "--json", cwd=tmp_path, before=before))
    assert found["compiler"]["text"] == f"no C compiler (cc): {advice}"
    assert found["native"]["text"].startswith("8-bit engine, " if prebuilt else "not available: there is no C compiler")


def test_doctor_reports_a_check_that_fails(transduce: Any, tmp_path: Path) -> None:
    before = "import transduce.nn.device as d\ndef fail(*_, **__): raise RuntimeError('x')\nd.pick_device = fail"
    outcome = transduce("doctor", cwd=tmp_path, before=before)
    assert outcome.code == 1
    assert re.search(r"^training +PROBLEM: failed: RuntimeError\('x'\)$", outcome.out, re.MULTILINE)


def test_doctor_knows_the_extras_of_the_package() -> None:
    assert EXTRAS.keys() == PROJECT["optional-dependencies"].keys() - {"dev", "docs", "bench"}


# transduce init


def test_a_recipe_from_flags_is_commented_and_can_be_trained(transduce: Any, trained: Any, tmp_path: Path) -> None:
    files = [word for word in trained.words if word.startswith("--") or "/" in word][:8]
    words = ["init", "own.toml", *files, "--preset", "tiny", *as_sets(TINY | {"train.steps": 2})]
    outcome = transduce(*words, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    size, length, written = outcome.err.splitlines()
    assert size == "transduce: 300 pairs, about 1,072 tokens a side"
    assert re.fullmatch(
        r"transduce: preset tiny: 2 steps, 1\.0 epochs, about a minute \(\S+ s a step on this CPU\)", length
    )
    assert written == "transduce: wrote own.toml; train with: transduce train own.toml"
    text = (tmp_path / "own.toml").read_text(encoding="utf-8")
    assert "# Number of updates of the weights.\nsteps = 2\n" in text
    assert "# beam = 4\n" in text
    trained_now = transduce("train", "own.toml", cwd=tmp_path)
    assert trained_now.code == 0, trained_now.err
    assert (tmp_path / "runs/own/model/model.safetensors").exists()
    assert complaint(transduce(*words, cwd=tmp_path)).startswith("own.toml exists already; ")
    assert transduce(*words, "--force", cwd=tmp_path).code == 0


def test_the_estimate_of_a_recipe_has_the_steps_that_fit_into_its_time(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("some text\n" * 100)
    words = ["init", "--text", "corpus.txt", "--preset", "tiny", *as_sets({"train.steps": 1_000_000})]
    outcome = transduce(*words, *as_sets({"train.minutes": 0.3}), cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    _, length, _ = outcome.err.splitlines()
    fitting, speed = re.fullmatch(  # type: ignore[union-attr]
        r"transduce: preset tiny: about (\d+) of 1,000,000 steps, \S+ epochs in 0\.3 minutes "
        r"\((\S+) s a step on this CPU\)",
        length,
    ).groups()
    assert 0.3 * 60 / (float(speed) + 0.006) - 1 < int(fitting) < 0.3 * 60 / (float(speed) - 0.006) + 1
    enough = transduce(*words, "--force", *as_sets({"train.minutes": 1e9}), cwd=tmp_path)
    assert "preset tiny: 1,000,000 steps, " in enough.err


def test_the_settings_that_are_commented_out_are_the_defaults(transduce: Any, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("some text\n")
    for words in (["--text", "corpus.txt", "--style", "gpt2"], ["--src", "corpus.txt", "--tgt", "corpus.txt"]):
        assert transduce("init", "one.toml", "--force", *words, cwd=tmp_path).code == 0
        text = (tmp_path / "one.toml").read_text(encoding="utf-8")
        shown = re.sub(r"^# (\w+ = .*)", r"\1", re.sub(r"^# .*# an example.*\n", "", text, flags=re.M), flags=re.M)
        assert shown.count("\n") == len(text.splitlines()) - text.count("# an example")
        (tmp_path / "all.toml").write_text(shown, encoding="utf-8")
        assert load_recipe(tmp_path / "all.toml", None, {}, []) == load_recipe(tmp_path / "one.toml", None, {}, [])


def test_init_asks_in_a_terminal(transduce: Any, trained: Any, tmp_path: Path) -> None:
    answers = ["", trained.folder / "train.src", trained.folder / "train.tgt", "", "tiny"]
    terminal = "import sys; sys.stdin.isatty = lambda: True"
    outcome = transduce("init", cwd=tmp_path, stdin="".join(f"{one}\n" for one in answers), before=terminal)
    assert outcome.code == 0, outcome.err
    recipe = load_recipe(tmp_path / "recipe.toml", None, {}, [])
    assert recipe.data.train == ((str(answers[1]), str(answers[2])),)
    assert (recipe.task, recipe.data.valid, recipe.tokenizer.vocab_size) == ("translate", (), 2000)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--text", "own.txt", "--valid", "missing.txt"], "missing.txt: no such file"),
        ([], "no training text: give --src and --tgt, --train or --text"),
        (["--train", "nothing.tsv"], "nothing.tsv: no such file"),
        (["--text", "own.txt", "--preset", "tinny"], "no preset tinny"),
        (["--text", "own.txt", "--set", "train.stepz=1"], "unknown key stepz"),
        (["--text", "own.txt", "--task", "juggle"], "no task juggle"),
        (["--text", "own.txt", "--set", "train.learning_rate=5"], "training would diverge"),
        (["--text", "own.txt", "--set", "tokenizer.path=no.model"], "no.model"),
        (["--text", "own.txt", "--valid", "empty.txt"], "empty.txt: no text"),
        (["--src", "own.txt", "--tgt", "own.txt", "--task", "masked"], "not from pairs of files"),
        (["--src", "own.txt", "--tgt", "own.txt", "--set", "train.start_from=nowhere"], "nowhere"),
        (["--train", "own.txt"], "own.txt: cannot tell its format"),
        (["--train", "own.txt", "--task", "parse"], "own.txt: no usable tree"),
        (["--train", "own.txt", "--task", "classify"], "own.txt: labelled texts are .tsv"),
    ],
)
def test_init_refuses_what_train_would(transduce: Any, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "own.txt").write_text("some text\n")
    (tmp_path / "empty.txt").touch()
    assert message in complaint(transduce("init", *words, cwd=tmp_path))
    assert not (tmp_path / "recipe.toml").exists()


# Completion


def test_the_shell_completes_commands_and_options(tmp_path: Path) -> None:
    code = "import sys; sys.argv = ['transduce']; from transduce.cli.main import main; main()"
    for words, number, completed in (
        ("transduce tra", 1, {"train", "translate", "transcribe"}),
        ("transduce translate --sha", 2, {"--shard"}),
    ):
        more = {"_TRANSDUCE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **more}, capture_output=True, text=True)
        assert set(done.stdout.split()) == completed


# Dockerfile


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, without comments, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line.strip())]


def test_the_image_runs_as_another_user_than_root_and_writes_only_to_tmp() -> None:
    steps = instructions()
    last_stage = max(number for number, (name, _) in enumerate(steps) if name == "FROM")
    names = [name for name, _ in steps[last_stage:]]
    assert names[names.index("USER") :] == ["USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"]
    user, _, group = dict(steps)["USER"].partition(":")
    assert min(int(user), int(group)) >= 1000
    environment = dict(word.split("=", 1) for name, rest in steps if name == "ENV" for word in shlex.split(rest))
    assert environment["TRANSDUCE_CACHE"].startswith("/tmp/")
    assert environment["HOME"] == "/tmp"
    assert not [name for name, _ in steps if name in ("VOLUME", "ADD")]
    for image in (rest.split()[0] for name, rest in steps if name == "FROM"):
        assert re.fullmatch(r"python:3\.\d+-slim-\w+", image)


def test_the_image_starts_a_command_that_exists() -> None:
    steps = dict(instructions())
    assert json.loads(steps["ENTRYPOINT"]) == list(PROJECT["scripts"])
    command, *words = json.loads(steps["CMD"])
    context = get_command(app).commands[command].make_context(command, words)  # type: ignore[attr-defined]
    assert (context.params["host"], str(context.params["port"])) == ("0.0.0.0", steps["EXPOSE"])


def test_the_image_is_healthy_while_its_server_answers_with_and_without_a_proxy() -> None:
    steps = dict(instructions())
    python, *words = json.loads(steps["HEALTHCHECK"].partition("CMD ")[2])
    assert python == "python"
    with Mirror({"/health": b"ok"}) as server:
        command = [
            sys.executable,
            *(word.replace(f"http://127.0.0.1:{steps['EXPOSE']}", server.address) for word in words),
        ]
        for proxy in ({}, {"http_proxy": "http://127.0.0.1:1", "no_proxy": ""}):
            done = subprocess.run(command, env={**os.environ, **proxy}, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
        assert len(server.requests) == 2
        server.faults["/health"] = [Fault(status=503)]
        assert subprocess.run(command, capture_output=True).returncode == 1


def test_the_image_copies_files_and_installs_extras_that_exist() -> None:
    steps = instructions()
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for *sources, _ in (shlex.split(rest) for name, rest in steps if name == "COPY" and "--from" not in rest):
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored
    (extras,) = [rest.partition("=")[2].split() for name, rest in steps if name == "ARG" and rest.startswith("EXTRAS")]
    assert extras == ["serve"]
    assert set(extras) <= PROJECT["optional-dependencies"].keys()


@pytest.mark.parametrize("extras", [["serve"], ["serve", "train"]])
def test_the_image_installs_everything_by_hash(extras: list[str]) -> None:
    run = " ".join(rest for name, rest in instructions() if name == "RUN")
    assert run.count("pip install") == 3
    assert run.count("--require-hashes") == 2
    assert "--no-deps --no-build-isolation ." in run
    done = subprocess.run(
        [sys.executable, ".ci/pinned.py", *extras], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pinned = [Requirement(line) for line in done.stdout.splitlines()]
    assert all(re.fullmatch(r"==[\w.]+", str(requirement.specifier)) for requirement in pinned)
    names = {requirement.name for requirement in pinned}
    assert {"sentencepiece", "typer", "fastapi", "setuptools"} <= names
    assert ("torch" in names) == ("train" in extras)
