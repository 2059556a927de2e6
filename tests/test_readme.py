"""The commands of the README, of getting started and of the feature list: each is run, with tiny sizes."""

import json
import lzma
import re
import shlex
import wave
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import in_cache
from document_samples import written_by_library_docx
from serving import ServerProcess
from toy_run import TINY, as_sets, make_toy_pairs, write_lines

ROOT = Path(__file__).parents[1]
ANY_MODEL = ("model.d_model", "model.d_ff", "model.num_heads", "train.warmup")
"""The settings of TINY that every architecture has."""
NOT_RUN = "train |serve|data get|--ray|transduce import|models/whisper|paper all|transduce (init|inspect)$"
"""Commands that are run elsewhere, or need public weights."""
PAGES = ("README.md", "docs/getting-started.md", "docs/features.md")
TEXT = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
COMMANDS = list(dict.fromkeys(re.findall(r"(?:^|`)((?:echo [^\n`|]*\| )?transduce [a-z][^\n`]*)", TEXT, re.MULTILINE)))


@pytest.fixture(scope="module")
def desk(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file and run that the commands name."""
    desk = tmp_path_factory.mktemp("desk")
    pairs = make_toy_pairs(200, seed=3)
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    for name in ("train", "valid", "t", "in"):
        write_lines(desk / f"{name}.en", sources[:50])
        write_lines(desk / f"{name}.de", targets[:50])
    for name in ("a", "b"):
        write_lines(desk / f"{name}.de", [*targets[:49], "ba"])
    rows = [f"{source}\t{target}" for source, target in pairs]
    for name in ("pairs.tsv", "mine.en-de.tsv", "pairs.en-ja.tsv"):
        write_lines(desk / name, rows)
    (desk / "in").mkdir()
    (desk / "out").mkdir()
    for name in ("a", "b"):
        write_lines(desk / "in" / f"{name}.jsonl", [json.dumps({"text": source}) for source in sources[:3]])
    (desk / "report.docx").write_bytes(written_by_library_docx())
    (desk / "recipes").symlink_to(ROOT / "recipes")
    (desk / "data" / "multi30k").mkdir(parents=True)
    (desk / "data" / "demo").mkdir()
    for name in ("train", "valid", "test"):
        write_lines(desk / "data" / "demo" / f"{name}.en", sources[:50])
        write_lines(desk / "data" / "demo" / f"{name}.de", targets[:50])
    for part in ("train", "valid"):
        path = desk / "data" / "multi30k" / f"{part}.en-de.tsv.xz"
        path.write_bytes(lzma.compress("".join(row + "\n" for row in rows).encode()))
    for name in ("corpus", "lines", "mono"):
        write_lines(desk / f"{name}.txt", sources)
    tree = "(TOP (S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .)))"
    write_lines(desk / "trees.txt", [tree] * 30)
    write_lines(desk / "reviews.tsv", [f"{source}\t{'good' if 'ba' in source else 'bad'}" for source in sources])
    with wave.open(str(desk / "recording.wav"), "wb") as sound:
        sound.setparams((1, 2, 16_000, 0, "NONE", "not compressed"))
        sound.writeframes(bytes(16_000))
    write_lines(desk / "train.tsv", ["recording.wav\tsilence"] * 4)
    for command in COMMANDS:
        if "train " in command and "first.toml" not in command:  # which `init` writes; see test_getting_started.py
            run(transduce, command, desk)
    nbest = run(transduce, "transduce translate -m runs/x --jsonl --nbest 4 in.en", desk)
    (desk / "nbest.jsonl").write_text(nbest.out, encoding="utf-8")
    return desk


def run(transduce: Any, command: str, desk: Path) -> Any:
    """Run a command as a shell would: `echo TEXT |`, `< FILE`, `> FILE` and step-* are understood."""
    stdin = ""
    if command.startswith("echo "):
        echo, command = command.split(" | ")
        stdin = shlex.split(echo)[1] + "\n"
    words = shlex.split(command)[1:]
    if "<" in words:
        stdin = (desk / words[words.index("<") + 1]).read_text(encoding="utf-8")
        words = words[: words.index("<")]
    if words[0] == "train":
        tiny = TINY | {"train.steps": 4, "train.save_every": 2}
        if "--start-from" in words:  # vocabulary and width are those of that model, which may be large
            tiny = {"train.steps": 1, "train.save_every": 1, "train.batch_tokens": 128}
            tiny |= {"model.encoder_layers": 1, "model.decoder_layers": 1}
        elif "--task" in words or "--text" in words:
            tiny = {name: tiny[name] for name in ANY_MODEL} | {"train.steps": 2, "train.save_every": 2}
        words += as_sets(tiny)
    expanded = [sorted(map(str, desk.glob(word))) if word.endswith("step-*") else [word] for word in words]
    words = [word for part in expanded for word in part]
    before = in_cache(desk / "cache") if words[0] == "cache" else ""  # it deletes what other tests need
    outcome = transduce(*words, stdin=stdin, cwd=desk, before=before)
    assert outcome.code == 0, (command, outcome.err)
    return outcome


def test_the_pages_show_every_command() -> None:
    shown = {command.split("transduce ")[1].split()[0] for command in COMMANDS}
    models = {"evaluate", "score", "rerank", "info", "average", "shrink", "shortlist"}
    family = {"generate", "parse", "fill", "embed", "classify", "transcribe", "import", "export", "paper"}
    around = {"init", "doctor", "data", "cache", "compare", "inspect", "serve"}
    assert shown == {"train", "translate"} | around | models | family


def test_the_server_of_the_pages_serves(transduce: Any, desk: Path, tmp_path: Path) -> None:
    (command,) = {command for command in COMMANDS if command.startswith("transduce serve ")}
    words = shlex.split(command)[2:]
    with ServerProcess(*words, log=tmp_path / "log", start=transduce.background, cwd=desk) as server:
        (request,) = re.findall(r"^curl (.*)", TEXT, re.MULTILINE)
        path, *data = shlex.split(request.replace("localhost:5000", ""))
        fields = dict(word.split("=", 1) for word in data if word != "-d")
        answer = httpx.post(server.address + path, data=fields, timeout=60)
        assert answer.json().keys() == {"translatedText"}


@pytest.mark.parametrize("command", sorted({command for command in COMMANDS if not re.search(NOT_RUN, command)}))
def test_a_command_of_the_pages_works(transduce: Any, desk: Path, command: str) -> None:
    (desk / "look.html").unlink(missing_ok=True)  # two pages write it
    outcome = run(transduce, command, desk)
    if "< in.en" in command or "--jsonl" in command:
        assert outcome.out.count("\n") == 50
    if "--out out.de" in command:
        assert (desk / "out.de").read_text().count("\n") == 50
    elif "report.docx" in command:
        assert (desk / "report.de.docx").exists()
    elif "transduce init " in command:
        assert (desk / "first.toml").exists()
    elif "--out " not in command:
        assert outcome.out


def test_the_python_example_works(transduce: Any, desk: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    tiny = re.sub(r"settings=\{.*?\}", f"settings={TINY | {'train.steps': 4}}", code)
    (desk / "example.py").write_text(tiny, encoding="utf-8")
    outcome = transduce(program=desk / "example.py", cwd=desk)
    assert outcome.code == 0, outcome.err
    assert outcome.out


@pytest.mark.parametrize("page", ["README.md", "docs/getting-started.md", "CONTRIBUTING.md"])
def test_make_has_the_targets_that_a_page_names(page: str) -> None:
    promised = set(re.findall(r"^make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert "test" in promised <= targets
    assert page == "CONTRIBUTING.md" or "demo" in promised
