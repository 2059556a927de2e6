"""Translating and serving in processes in which neither torch nor numpy can be imported: the outputs are the same."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import TIMEOUT, ServerProcess

SENTENCES = [
    "Where is the station?",
    "Write to anna@example.com before 17:30! It costs 3.5 kg of {name}. 😀",
    "",
    "The <b>dog</b> is sleeping, and nobody knows why.",
]
TO_GERMAN = ("translate", "--to", "de")


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """The environment of processes in which importing torch or what comes with it is an error."""
    names = ("torch", "sacrebleu", "icu4py", "numpy", "safetensors")
    blocked = f"import sys\nfor name in {names}:\n    sys.modules[name] = None\n"
    folder = tmp_path / "blocked"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(blocked, encoding="utf-8")
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def run(environment: dict[str, str], *words: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "transduce", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT)


def test_translate_gives_the_same_output(transduce: Any, without_torch: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    words = (*TO_GERMAN, "--jsonl", "--confidence", "--nbest", "2", "in.txt")
    ours = run(without_torch, *words, cwd=tmp_path)
    assert (ours.returncode, ours.stderr) == (0, "")
    assert ours.stdout == transduce(*words, cwd=tmp_path).out
    records = [json.loads(line) for line in ours.stdout.splitlines()]
    assert len(records) == len(SENTENCES)
    assert "anna@example.com" in records[1]["translations"][0]["text"]
    assert all(one["alignment"] is not None for record in (records[0], records[3]) for one in record["translations"])


def test_a_trained_model_gives_the_same_output(
    transduce: Any, trained: Any, without_torch: dict[str, str], tmp_path: Path
) -> None:
    words = ("translate", "-m", trained.run, "babo dedu gigo")
    ours = run(without_torch, *words, cwd=tmp_path)
    assert (ours.returncode, ours.stderr) == (0, "")
    assert ours.stdout == transduce(*words, cwd=tmp_path).out


@pytest.mark.parametrize(
    ("words", "need"),
    [
        ((*TO_GERMAN, "--engine", "plain", "Hello"), "this needs torch"),
        ((*TO_GERMAN, "--sample", "Hello"), "engine native has no sampling, and plain needs torch"),
        ((*TO_GERMAN, "--beam", "17", "Hello"), "engine native has no beam above 16, and plain needs torch"),
        (("score", "--to", "de", "--test", "pairs.tsv"), "this needs torch"),
        (("inspect", "--to", "de", "Hello", "-o", "look.html"), "this needs torch"),
        (("train", "--train", "pairs.tsv", "--out", "run"), "this needs torch"),
        (("evaluate", "--to", "de", "--src", "a", "--ref", "a"), "this needs sacrebleu"),
        (("data", "check", "pairs.tsv"), "this needs numpy"),
    ],
)
def test_what_needs_torch_says_how_to_install_it(
    words: tuple[str, ...], need: str, without_torch: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    (tmp_path / "a").write_text("a\n")
    outcome = run(without_torch, *words, cwd=tmp_path)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    message = f"transduce: {need}, which is not installed: pip install 'transduce[train]'"
    assert outcome.stderr.splitlines()[-1] == message
    assert "Traceback" not in outcome.stderr


def test_doctor_tells_what_is_missing_and_what_for(without_torch: dict[str, str], tmp_path: Path) -> None:
    outcome = run(without_torch, "doctor", "--json", cwd=tmp_path)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    found = {finding["name"]: finding["text"] for finding in json.loads(outcome.stdout)}
    assert found["torch"] == "not installed (pip install 'transduce[train]')"
    assert found["not installed"].startswith("train: training, evaluation, ")
    assert "; icu: boundaries of sentences " in found["not installed"]
    assert found["not installed"].endswith(" (pip install 'transduce[NAME]')")
    assert not {"gpu", "triton", "training"} & found.keys()
    assert found["translation"].startswith("native (8-bit")


def test_python_says_how_to_install_it(without_torch: dict[str, str]) -> None:
    code = (
        "import transduce\n"
        "assert transduce.Translator.load().translate('The dog is sleeping.', to='de')\n"
        "for call in (lambda: transduce.train, lambda: transduce.Translator.load(engine='plain')):\n"
        "    try:\n        call()\n"
        "    except transduce.TransduceError as error:\n        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=without_torch, capture_output=True, text=True)
    message = "this needs torch, which is not installed: pip install 'transduce[train]'\n"
    assert (done.stdout, done.stderr) == (2 * message, "")


def test_serve_gives_the_same_output(transduce: Any, without_torch: dict[str, str], tmp_path: Path) -> None:
    html = {"q": "The <b>dog</b> is <i>sleeping</i>.", "source": "en", "target": "de", "format": "html"}
    answers = []
    for name, environment in (("without", without_torch), ("with", transduce.environment)):
        with ServerProcess(log=tmp_path / name, environment=environment) as server:
            assert httpx.get(f"{server.address}/").status_code == 200
            answers.append(httpx.post(f"{server.address}/translate", json=html, timeout=TIMEOUT).json())
            if name == "without":
                body = {"text": "Hello", "to": "de"}
                refused = httpx.post(f"{server.address}/inspect/look", json=body, timeout=TIMEOUT)
                assert refused.status_code == 400
                assert "pip install 'transduce[train]'" in refused.json()["error"]
    assert answers[0] == answers[1]
    assert "<b>Hund</b>" in answers[0]["translatedText"]
