"""Recipes: each is valid and states its result; the script of the bundled model runs from text to 8 bits."""

import lzma
import os
import re
import runpy
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transduce.training.recipe import load_recipe

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
SIZES = """
[tokenizer]
vocab_size = 450

[model]
encoder_layers = 1
decoder_layers = 1
d_model = 16
d_ff = 24
num_heads = 2
"""
TRAIN = """
[train]
steps = 2
batch_tokens = 256
save_every = 1
valid_sentences = 2
"""


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_valid_and_its_header_states_its_result(path: Path) -> None:
    load_recipe(path, None, {}, [])
    header = path.read_text(encoding="utf-8").partition("\npreset")[0]
    for word in ("data", "run", "hardware", "result"):
        assert re.search(f"^# {word}  ", header, re.MULTILINE)
    assert f"transduce train {path.relative_to(ROOT)}" in header


def test_the_settings_page_is_up_to_date() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "settings.py"))["page"]()
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == written, "run: make settings"


def small(recipe: str) -> str:
    """A recipe with the sizes of a small test; other settings are unchanged."""
    kept = re.sub(r"\[(tokenizer|model)\]\n(.+\n)+", "", recipe)
    lines = re.search(r"\[train\]\n((?:.+\n)+)", kept)
    assert lines
    names = ("start_from", "average", "keep", "label_smoothing")
    own = [line for line in lines[1].splitlines() if line.startswith(names)]
    sizes = "" if "start_from" in lines[1] else SIZES  # otherwise they are those of that model
    return kept.replace(lines[0], "") + sizes + TRAIN + "\n".join(own) + "\n"


# Stands for `transduce` in a script: importing torch anew for each command would take most of the test's time. The
# folder `busy` is a lock, as the script starts several commands at once. Each command reads its exit code from its own
# pipe: on a shared one, the next command could read the end of this answer instead of its own.
STAND_IN = """#!/bin/sh
mkfifo "answer.$$"
until mkdir busy 2> /dev/null; do sleep 0.05; done
printf '%s\\0' "answer.$$" "$@" > asked
read code < "answer.$$"
rmdir busy
exit "$code"
"""


def run_script(script: Path, transduce: Any, *arguments: str) -> int:
    """Run a shell script, with the command line of the tests for its `transduce`; returns its exit code."""
    folder = script.parents[2]
    os.mkfifo(folder / "asked")
    (folder / "bin").mkdir()
    (folder / "bin" / "transduce").write_text(STAND_IN)
    (folder / "bin" / "transduce").chmod(0o755)
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    asked = os.open(folder / "asked", os.O_RDWR)
    with subprocess.Popen(["sh", script, *arguments], cwd=folder, env={**os.environ, "PATH": path}) as process:
        while process.poll() is None:
            if select.select([asked], [], [], 0.1)[0]:
                answer, *words = os.read(asked, 4096).decode().split("\0")[:-1]
                outcome = transduce(*words, cwd=folder)
                sys.stderr.write(outcome.err)
                (folder / answer).write_text(f"{outcome.code}\n")
    os.close(asked)
    return process.returncode


def test_the_bundled_model_is_made_by_one_command(transduce: Any, trained: Any, tmp_path: Path, toy_pairs: Any) -> None:
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    for path in (tmp_path / "recipes").rglob("*.toml"):
        path.write_text(small(path.read_text(encoding="utf-8")), encoding="utf-8")
    folder, data = tmp_path / "recipes" / "bundled", tmp_path / "data"
    phrases = "".join(f"{source}\t{target}\t{target}\n" for source, target in toy_pairs[:4])
    (folder / "phrases.tsv").write_text(phrases, encoding="utf-8")
    script, synthetic = folder / "make.sh", folder / "synthetic.py"
    text = re.sub("17890|70060|52626", "2", script.read_text(encoding="utf-8"))
    script.write_text(text, encoding="utf-8")
    quantities = folder / "quantities.py"
    quantities.write_text(quantities.read_text(encoding="utf-8").replace("12_000", "10"), encoding="utf-8")
    # Models of this test translate nothing plausibly.
    synthetic.write_text(
        synthetic.read_text(encoding="utf-8").replace("return bool(words)", "return True or bool(words)")
    )
    words = re.sub(r"\$(\w+)/", lambda match: f"data/{match[1]}/", text)
    named = set(re.findall(r"data/[\w/.-]+\.tsv\.xz", words))
    for recipe in ("teacher", "student", "final"):
        named |= set(re.findall(r"data/[\w/.-]+\.tsv\.xz", (folder / f"{recipe}.toml").read_text()))
    named |= {
        f"data/domains/{name}.en-{target}.tsv.xz" for name in ("manuals", "game-engine-docs") for target in ("de", "fr")
    }
    for number, name in enumerate(sorted(named)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [f"A {source} b c {number}.\tA {target} b c {number}.\n" for source, target in toy_pairs[:50]]
        path.write_bytes(lzma.compress("".join(rows).encode()))
    (data / "extra").mkdir()
    more = [f"tatoeba-more.{end}" for end in ("en-de.tsv", "en-fr.tsv", "de", "fr")]
    for name in ("notes.en", "notes.de", "common-voice.fr", "tatoeba-de-fr.de-fr.tsv", *more):
        rows = [f"{source} {name}\t{target} {name}\n" for source, target in toy_pairs[50:60]]
        lines = rows if name.endswith(".tsv") else [row.partition("\t")[0] + "\n" for row in rows]
        (data / "extra" / name).write_text("".join(lines), encoding="utf-8")
    for name in ("en-fr", "fr-en"):
        shutil.copytree(trained.run / "model", data / "opus" / name)

    assert run_script(script, transduce) == 0
    for source, target in (("en", "de"), ("de", "en"), ("to-fr.en", "fr"), ("fr", "en")):
        direction = f"{source[-2:]}-{target}.{target}"
        sources, distilled = (
            (tmp_path / "data" / "bundled" / name).read_bytes().split(b"\n")[:-1]
            for name in (f"sources.{source}", f"distilled.{direction}")
        )
        assert len(sources) == len(set(sources)) > 0
        assert len(distilled) == len(sources)
    assert {path.name for path in (tmp_path / "runs/bundled").iterdir()} == {
        "model.json",
        "model.safetensors",
        "tokenizer.model",
    }


def test_phrases_have_three_languages_and_no_sentence_twice() -> None:
    rows = (ROOT / "recipes" / "bundled" / "phrases.tsv").read_text(encoding="utf-8").split("\n")
    assert rows.pop() == ""
    assert len(rows) == len(set(rows)) > 10_000
    for row in rows:
        texts = row.split("\t")
        assert len(texts) == 3
        assert all(text == text.strip() != "" for text in texts)


def test_quantities_have_three_languages_and_no_sentence_of_the_everyday_ones(tmp_path: Path) -> None:
    out = tmp_path / "quantities.tsv"
    script = ROOT / "recipes" / "bundled" / "quantities.py"
    subprocess.run([sys.executable, script, out, "--tries", "500"], check=True, stdout=subprocess.DEVNULL)
    rows = out.read_text(encoding="utf-8").splitlines()
    everyday = set(re.split(r"[\t\n]", (ROOT / "tests" / "data" / "everyday.tsv").read_text(encoding="utf-8")))
    assert len(rows) == len(set(rows)) > 3000
    for row in rows:
        texts = row.split("\t")
        assert len(texts) == 3
        assert all(text == text.strip() != "" and "{" not in text and text not in everyday for text in texts)


def test_parsers_are_made_by_one_command(transduce: Any, tmp_path: Path, toy_pairs: Any) -> None:
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    for path in (tmp_path / "recipes" / "parsing").glob("*.toml"):
        path.write_text(small(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name, count in (("train", 40), ("dev", 4), ("test", 5)):
        for corpus in ("craft", "gum"):
            path = tmp_path / "data" / "trees" / f"{corpus}.{name}.txt.xz"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [f"(S (NP (NN {source.replace(' ', '-')})) (VP (VB {target[:2]})))" for source, target in toy_pairs]
            path.write_bytes(lzma.compress("\n".join(rows[:count]).encode()))
    plain = tmp_path / "data" / "europarl" / "train.en-de.part1.tsv.xz"
    plain.parent.mkdir()
    plain.write_bytes(lzma.compress("".join(f"{source}\t{target}\n" for source, target in toy_pairs).encode()))

    script = tmp_path / "recipes" / "parsing" / "make.sh"
    assert run_script(script, transduce, "data/trees", "runs", "cpu", "small", "ensemble", "semi") == 0
    assert len((tmp_path / "runs" / "plain.txt").read_text().splitlines()) > 5
    assert all(line.startswith("(TOP ") for line in (tmp_path / "runs" / "silver.txt").read_text().splitlines())
    for model in ("small", "ensemble", "semi"):
        for corpus in ("craft", "gum"):
            assert len((tmp_path / "runs" / f"{model}.{corpus}.parsed.txt").read_text().splitlines()) == 5
