"""Commands with closed streams, hostile names and values: one line, escaped and bounded."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import complaint, without_compiling

STREAMS = ("stdin", "stdout", "stderr")


@pytest.mark.parametrize(("closed", "code"), [([0], 0), ([1], 2), ([2], 0), ([0, 1, 2], 2)])
def test_closed_streams_are_no_internal_error(
    transduce: Any, trained: Any, tmp_path: Path, closed: list[int], code: int
) -> None:
    before = "\n".join([without_compiling(), "import sys", *(f"sys.{STREAMS[n]} = None" for n in closed)])
    outcome = transduce("translate", "-m", trained.run, "babo", before=before, cwd=tmp_path)
    assert outcome.code == code
    assert outcome.err == ("transduce: standard output is closed\n" if closed == [1] else "")
    assert bool(outcome.out) == (code == 0)


def test_a_file_never_takes_the_place_of_a_closed_stream(transduce: Any, trained: Any, tmp_path: Path) -> None:
    before = "import sys; sys.stdout = sys.stderr = None"  # closes the files
    outcome = transduce("translate", "-m", trained.run, "babo", "-o", "out.txt", before=before, cwd=tmp_path)
    assert outcome.code == 0
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 1


def test_a_full_device_as_output_is_one_line(transduce: Any, trained: Any, tmp_path: Path) -> None:
    before = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    outcome = transduce("translate", "-m", trained.run, "babo", before=before, cwd=tmp_path)
    assert (outcome.code, outcome.err) == (2, "transduce: No space left on device\n")


def test_a_closed_pipe_is_no_error(transduce: Any, trained: Any) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = transduce.background("info", "-m", trained.run, cwd=trained.folder, **pipes)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


@pytest.mark.parametrize("name", [b"\xff.txt", b"a\x1b]0;title\x07b.txt", "\u202e.txt".encode()])
def test_names_are_escaped(transduce: Any, trained: Any, tmp_path: Path, name: bytes) -> None:
    argument = os.fsdecode(name)
    message = complaint(transduce("translate", "-m", trained.run, argument, cwd=tmp_path))
    assert message.isprintable()
    assert message.startswith(argument.encode("unicode_escape").decode())
    (tmp_path / argument).write_text("babo\n")
    outcome = transduce("translate", "-m", trained.run, argument, "-o", "out.txt", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize(
    "value",
    ["\x1b[2J\x9b\nfake: line", "x" * 4_000_000, "\ud800", "\u202e"],
    ids=["escape", "long", "surrogate", "order"],
)
def test_values_of_a_model_are_one_line(transduce: Any, trained: Any, tmp_path: Path, value: str) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    card = json.loads((model / "model.json").read_text())
    card["model"][value] = 1
    (model / "model.json").write_text(json.dumps(card))
    message = complaint(transduce("translate", "-m", "model", "babo", cwd=tmp_path))
    assert message.startswith("model/model.json")
    assert "unknown key" in message
    assert message.isprintable()
    assert len(message) < 2200


def test_info_prints_any_facts(transduce: Any, trained: Any, tmp_path: Path) -> None:
    model = shutil.copytree(trained.run / "model", tmp_path / "model")
    card = json.loads((model / "model.json").read_text())
    deep: Any = 1
    for _ in range(600):
        deep = [deep]
    card["facts"] |= {"numbers": [[1, 2], [{}]], "deep": deep, "\x1b[2J": "\ud800\n\x9b", "long": "x" * 10**6}
    card["facts"]["scores"] = {"bleu": [[1]], "more": {"a": {"b": [None]}}}
    (model / "model.json").write_text(json.dumps(card))
    outcome = transduce("info", "-m", "model", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert all(line.isprintable() and len(line) < 2200 for line in outcome.out.splitlines())
    assert "\\ud800\\n\\x9b" in outcome.out
    as_json = transduce("info", "-m", "model", "--json", cwd=tmp_path)
    assert json.loads(as_json.out)["numbers"] == [[1, 2], [{}]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "meta"], "the device meta computes nothing"),
        (["--temperature", "1e308"], "temperature must be between 0 and 1000"),
    ],
)
def test_values_that_cannot_be_used_are_refused(
    transduce: Any, trained: Any, tmp_path: Path, words: list[str], message: str
) -> None:
    assert message in complaint(transduce("translate", "-m", trained.run, "babo", *words, cwd=tmp_path))


def test_more_threads_than_any_machine_has_are_refused(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce("translate", "-m", trained.run, "babo", "--threads", "2147483648", cwd=tmp_path)
    assert outcome.code == 2
    assert "Invalid value for '--threads'" in outcome.err
    for setting, message in (
        ("threads=2147483648", "threads must be at most 1024"),
        ("device=meta", "the device meta"),
    ):
        words = [*trained.words, "--set", f"train.{setting}", "--out", "run"]
        assert message in complaint(transduce(*words, cwd=tmp_path))


def test_a_user_without_a_home_is_told_what_to_set(transduce: Any, trained: Any, tmp_path: Path) -> None:
    before = """
import os, pathlib
for name in ("TRANSDUCE_CACHE", "XDG_CACHE_HOME", "HOME"):
    os.environ.pop(name, None)
def home(cls=None):
    raise RuntimeError("Could not determine home directory.")
pathlib.Path.home = home
"""
    message = complaint(transduce("cache", before=before, cwd=tmp_path))
    assert message == "this user has no home folder; name a folder for the cache with TRANSDUCE_CACHE"
    outcome = transduce("translate", "-m", trained.run, "babo", before=before + without_compiling(), cwd=tmp_path)
    assert outcome.code == 0  # the cache is not necessary


def test_an_incomplete_limit_is_named(transduce: Any, trained: Any, tmp_path: Path) -> None:
    outcome = transduce("serve", "-m", trained.run, "--limit", "queue", cwd=tmp_path)
    assert complaint(outcome) == "--limit queue: write it as NAME=VALUE"
