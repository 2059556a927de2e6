"""The commands of docs/getting-started.md, one after another in an empty folder, as a newcomer types them."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
from serving import ServerProcess
from toy_run import SMALL_DEMO, TINY, as_sets

PAGE = Path(__file__).parents[1] / "docs" / "getting-started.md"
AS_WRITTEN = os.environ.get("FAULTS") == "full"
"""With `make faults`, models are trained as long as the page says; otherwise, tiny ones for a few steps."""
FEW = TINY | {"train.steps": 4, "train.save_every": 2, "train.valid_sentences": 4, "model.num_heads": 4}
INSTALLATION = ("pip ", "make ")


def test_every_command_works_in_turn(transduce: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [line for kind, block in blocks if not kind for line in block.splitlines()]
    commands = [line for line in lines if not line.startswith(INSTALLATION)]
    assert len(commands) >= 12
    before = "" if AS_WRITTEN else SMALL_DEMO
    while commands:
        command = commands.pop(0)
        if command.startswith("transduce serve"):
            serve_and_ask(transduce, command, commands.pop(0), tmp_path)
            continue
        text, _, piped = command.rpartition(" | ") if command.startswith("echo ") else ("", "", command)
        words = shlex.split(piped)[1:]
        if words[0] in ("train", "init") and not AS_WRITTEN:
            words += as_sets(FEW)
        outcome = transduce(*words, stdin=shlex.split(text)[1] + "\n" if text else "", cwd=tmp_path, before=before)
        assert outcome.code == 0, (command, outcome.err)
        assert outcome.out or "-o" in words or "--out" in words or words[0] in ("train", "init"), command
    (code,) = [block for kind, block in blocks if kind == "python"]
    if not AS_WRITTEN:
        code = re.sub(r"settings=\{.*?\}", f"settings={FEW}", code)
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    outcome = transduce(program=tmp_path / "example.py", cwd=tmp_path)
    assert (outcome.code, outcome.out.count("\n")) == (0, 1), outcome.err
    for name in ("look.html", "check.html", "runs/first/report.html", "runs/second/model/model.json"):
        assert (tmp_path / name).exists()


def test_the_table_has_every_extra() -> None:
    text = (PAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(r"^(\w+) = \[", text.split("[project.optional-dependencies]")[1].split("\n[")[0], re.MULTILINE)
    assert {extra for extra in extras if f"'.[{extra}]'" not in PAGE.read_text(encoding="utf-8")} == set()


def serve_and_ask(transduce: Any, serve: str, ask: str, folder: Path) -> None:
    with ServerProcess(*shlex.split(serve)[2:], log=folder / "log", start=transduce.background, cwd=folder) as server:
        path, *data = shlex.split(ask.replace("localhost:5000", ""))[1:]
        fields = dict(word.split("=", 1) for word in data if word != "-d")
        assert httpx.post(server.address + path, data=fields, timeout=60).json()["translatedText"] is not None
