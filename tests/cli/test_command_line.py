"""What the commands have in common: help, names of options, and what they import."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.main import all_commands
from transduce.fast.choose import ENGINES

ROOT = Path(__file__).parents[2]
DATA_CHECK = ["data", "check", "--src", "train.src", "--tgt", "train.tgt"]


def test_every_command_has_help(transduce: Any, tmp_path: Path) -> None:
    top = transduce("--help", cwd=tmp_path)
    assert top.code == 0
    _, *sections = re.split(r"\n(?=[A-Z][^\n]*:\n)", top.out.partition("\nOptions:")[2])
    assert [section.splitlines()[0] for section in sections] == [
        "Translate and use models:",
        "Train models:",
        "Understand models:",
        "Exchange models:",
        "Serve models, and check the installation:",
    ]
    rows = [row for section in sections for row in section.splitlines()[1:] if row]
    assert all(re.fullmatch(r"  [a-z]+ +[A-Z].*\.", row) for row in rows)  # a complete sentence in one line
    commands = [row.split()[0] for row in rows]
    assert commands == all_commands()
    for command in commands:
        outcome = transduce(command, "--help", cwd=tmp_path)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("Usage: ")
        assert f" {command} " in outcome.out.splitlines()[0]


@pytest.mark.parametrize(
    "command", [command for command in all_commands() if command not in ("data", "paper", "rerank")]
)
def test_the_help_of_an_option_names_options_of_the_command(transduce: Any, tmp_path: Path, command: str) -> None:
    _, options = transduce(command, "--help", cwd=tmp_path).out.split("Options:")
    own = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)(?: / (--[\w-]+))?", options, re.MULTILINE))
    assert set(re.findall(r"--[a-z][\w-]*", options)) == {name for names in own for name in names if name}


@pytest.mark.parametrize("command", ["translate", "evaluate", "inspect"])
def test_help_shows_type_default_and_bounds_of_search_options(transduce: Any, tmp_path: Path, command: str) -> None:
    text = " ".join(transduce(command, "--help", cwd=tmp_path).out.split())
    options = [
        "--beam <int> Number of hypotheses kept at each step; 1 is greedy search. [default: 4; x>=1; x<=1024]",
        "Block repeated n-grams of this size; 0 disables. [default: 0; x>=0]",
        "[default: 0.6; x>=-10; x<=10]",
    ]
    if command != "inspect":
        options += ["--top-p <float>", "[default: 1.0; x>0; x<=1]", "--sample / --no-sample", "[default: no-sample]"]
    for part in options:
        assert part in text


@pytest.mark.parametrize(
    "command",
    [["train"], ["translate"], ["inspect"], ["evaluate"], ["shrink"], ["demo"], ["data", "get"], ["data", "check"]],
)
def test_outputs_have_one_name_on_the_command_line(transduce: Any, tmp_path: Path, command: list[str]) -> None:
    text = transduce(*command, "--help", cwd=tmp_path).out
    assert re.search(r"^ *-o, --out <path> ", text, re.MULTILINE)
    assert "--output" not in text
    assert "--save" not in text


def test_out_has_a_long_and_a_short_name(transduce: Any, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("ba be\n")
    for words in (["--out", "a.txt"], ["--out=b.txt"], ["-o", "c.txt"]):
        assert transduce("translate", "-m", trained.run, "in.txt", *words, cwd=tmp_path).code == 0
    pair = ("--src", "in.txt", "--ref", "in.txt", "--out", "d.txt")
    assert transduce("evaluate", "-m", trained.run, *pair, cwd=tmp_path).code == 0
    assert len({(tmp_path / f"{name}.txt").read_text() for name in "abcd"}) == 1
    refused = transduce("translate", "-m", trained.run, "in.txt", "--output", "e.txt", cwd=tmp_path)
    assert refused.code == 2
    assert "--output" in refused.err


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["info", "-m", "run"], DATA_CHECK])
def test_commands_that_compute_nothing_do_not_import_torch(transduce: Any, trained: Any, words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "transduce", *words]
    done = subprocess.run(command, cwd=trained.folder, env=transduce.environment, capture_output=True, text=True)
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "transduce.cli.main" in imported
    assert not {"torch", "matplotlib", "fastapi"} & imported


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("transduce tr", ["translate", "transcribe", "train"]),
        ("transduce translate --engine ", ["gpu", "native", "plain", "auto"]),
        ("transduce translate --engine n", ["native"]),
        ("transduce translate --to ", ["de", "en", "fr"]),
        ("transduce translate -m nothing --to ", []),
        ("transduce train --preset ", ["tiny", "small", "base", "big"]),
        ("transduce export --to ", ["hf", "ctranslate2", "argos", "onnx", "marian", "web"]),
        ("transduce info -m ", ["run"]),
        ("transduce generate -m run/", ["run/model"]),
    ],
)
def test_the_shell_completes_values(transduce: Any, trained: Any, words: str, offered: list[str]) -> None:
    environment = {
        **transduce.environment,
        "_TRANSDUCE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    code = "import sys; sys.argv = ['transduce']; from transduce.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=trained.folder, env=environment, capture_output=True, text=True
    )
    found = done.stdout.split()
    assert done.stderr == ""
    assert [value for value in found if value in offered] == offered
    assert {*found} == {*offered} or "-m" in words  # the tests of this folder may have trained other models


def test_help_lists_the_values_that_exist(transduce: Any, tmp_path: Path) -> None:
    presets, styles = (
        {path.stem for path in (ROOT / f"src/transduce/{name}").glob("*.toml")} for name in ("presets", "styles")
    )
    for command, start, values in (
        ("train", "Size of the model: ", presets),
        ("train", "Member of the family: ", styles),
        ("translate", "Engine to run: ", {*ENGINES}),
    ):
        text = " ".join(transduce(command, "--help", cwd=tmp_path).out.split())
        listed = text.partition(start)[2].partition(".")[0].removesuffix(" (the fastest)")
        assert {*re.split(", | or ", listed)} == values
