"""Commands without a model use the bundled model, which these tests replace by the toy model."""

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.cli.shrink import shrink_model
from transduce.errors import ModelError
from transduce.models import folder as model_folder
from transduce.translation.translator import Translator

ROOT = Path(__file__).parents[2]
NONE_THERE = "transduce: no model named, and this installation has no bundled model; name a run or a model (-m)\n"


@pytest.fixture(scope="module")
def bundled(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of the bundled model."""
    folder = tmp_path_factory.mktemp("bundled") / "en-de"
    shrink_model(trained.run / "model", folder)
    (folder / "README.md").write_text("# Babo to babo\n\nLicence: none\n", encoding="utf-8")
    return folder


@pytest.fixture
def command(transduce: Any, bundled: Path, tmp_path: Path) -> Callable[..., Any]:
    """The command line of an installation that bundles the toy model."""
    before = f"from pathlib import Path; from transduce.models import folder; folder.BUNDLED = Path({str(bundled)!r})"
    return lambda *words, then="", **options: transduce(*words, before=before + then, cwd=tmp_path, **options)


def test_translate_uses_it_for_text_and_files(command: Any, bundled: Path, tmp_path: Path) -> None:
    outcome = command("translate", "babo dedu gigo")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome == command("translate", "-m", bundled, stdin="babo dedu gigo\n")
    (tmp_path / "in.txt").write_text("gigo\nbabo dedu\n")
    mixed = command("translate", "dedu", "in.txt", "babo dedu gigo", "--out", "out.txt")
    assert (mixed.code, mixed.out, mixed.err) == (0, "", "")
    piped = command("translate", stdin="dedu\ngigo\nbabo dedu\nbabo dedu gigo\n")
    assert (tmp_path / "out.txt").read_text() == piped.out


def test_a_missing_file_is_reported_in_one_line(command: Any) -> None:
    outcome = command("translate", "nothing.txt")
    assert (outcome.code, outcome.out) == (2, "")
    expected = (
        "nothing.txt: no such file; if it is text to translate, pipe it in: echo nothing.txt | transduce translate"
    )
    assert outcome.err == f"transduce: {expected}\n"


def test_info_describes_it_and_prints_its_notes(command: Any, bundled: Path) -> None:
    outcome = command("info")
    assert outcome.code == 0
    assert re.search(rf"^folder +{re.escape(str(bundled))}$", outcome.out, re.MULTILINE)
    assert re.search(r"^stored as +int8$", outcome.out, re.MULTILINE)
    assert outcome.out.startswith("# Babo to babo\n\nLicence: none\n\n")


def test_inspect_uses_it(command: Any, tmp_path: Path) -> None:
    assert command("inspect", "babo", "-o", "look.html").code == 0
    assert (tmp_path / "look.html").exists()


def test_evaluate_scores_it_if_no_other_model_is_given(command: Any, trained: Any, bundled: Path) -> None:
    pair = ("--src", trained.folder / "valid.src", "--ref", trained.folder / "valid.tgt")
    outcome = command("evaluate", *pair)
    assert outcome.code == 0
    assert outcome == command("evaluate", *pair, "-m", bundled)
    assert command("evaluate", *pair, "--hyp", trained.folder / "valid.tgt").out.startswith("BLEU  100.00")


def test_serve_names_it_after_its_languages(command: Any) -> None:
    fake_server = "; from transduce.serve import server; server.serve_on = lambda listening, app, started: started()"
    outcome = command("serve", "--port", "0", then=fake_server)
    assert outcome.code == 0
    assert outcome.err.startswith("transduce: serving en-de on http://127.0.0.1:")


def test_translator_load_uses_it(bundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "BUNDLED", bundled)
    assert Translator.load().translate("babo dedu") == Translator.load(bundled).translate("babo dedu")


@pytest.mark.parametrize(
    "words",
    [
        ["translate", "babo"],
        ["info"],
        ["inspect", "babo"],
        ["serve"],
        ["evaluate", "--test", "test.tsv"],
        ["shrink", "--out", "small"],
    ],
)
def test_an_installation_without_one_reports_it(transduce: Any, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "test.tsv").write_text("babo\tbabo\n")
    before = "from pathlib import Path; from transduce.models import folder; folder.BUNDLED = Path('/nowhere')"
    outcome = transduce(*words, before=before, cwd=tmp_path)
    assert (outcome.code, outcome.out, outcome.err) == (2, "", NONE_THERE)


def test_translator_load_without_one_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "BUNDLED", Path("/nowhere"))
    with pytest.raises(ModelError, match="no bundled model"):
        Translator.load()


def test_a_wheel_contains_it(bundled: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools", reason="wheels are built by setuptools")
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "en-de"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(bundled, source / "src" / "transduce" / "bundled" / "en-de")
    build = "from setuptools import build_meta; print(build_meta.build_wheel('..'))"
    made = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=True)
    names = zipfile.ZipFile(tmp_path / made.stdout.splitlines()[-1]).namelist()
    files = {name.rpartition("/")[2] for name in names if name.startswith("transduce/bundled/en-de/")}
    assert files == {"README.md", "model.json", "model.safetensors", "tokenizer.model"}
