"""`make check`: unsafe deserialization, import cycles and empty names are rejected; the audit; lock file and SBOM."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUFF = Path(sys.executable).with_name("ruff")
BAD = {
    "import pickle": "TID251",
    "from pickle import loads": "TID251",
    "import pickle\n\npickle.loads(b'')": "S301",
    "import torch\n\ntorch.load('x')": "TID251",
    "from torch import load": "TID251",
    "import torch.distributed as dist\n\ndist.all_gather_object([], 1)": "TID251",
    "eval('1')": "S307",
    "exec('1')": "S102",
    "import marshal": "TID251",
}


@pytest.mark.skipif(not RUFF.exists(), reason="needs ruff")
@pytest.mark.parametrize("code", BAD)
def test_code_that_could_execute_its_input_does_not_pass_the_checks(code: str) -> None:
    command = [RUFF, "check", "--output-format", "json", "--stdin-filename", "src/transduce/bad.py", "-"]
    done = subprocess.run(command, input=code, cwd=ROOT, capture_output=True, text=True, check=False)
    assert BAD[code] in {problem["code"] for problem in json.loads(done.stdout)}


def test_the_audit_reports_what_it_checked_and_passes_without_a_network(tmp_path: Path) -> None:
    """An unreachable package index does not fail the audit, but is reported."""
    fake = tmp_path / "pip_audit"
    fake.mkdir()
    (fake / "__init__.py").touch()
    (fake / "__main__.py").write_text("import sys; print('no network', file=sys.stderr); sys.exit(1)")
    audit = shutil.copy(ROOT / ".ci/audit.py", tmp_path / "audit.py")
    environment = {"PYTHONPATH": str(tmp_path)}

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, audit], env=environment, capture_output=True, text=True, check=False)

    assert run().stdout == "pip-audit: not audited, nothing could be looked up (no network)\n"
    assert run().returncode == 0
    answer = {
        "dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}, {"name": "b", "skip_reason": ""}]
    }
    (fake / "__main__.py").write_text(f"print({json.dumps(json.dumps(answer))})")
    assert run().returncode == 1
    assert "a 1: CVE-1" in run().stdout
    assert "1 of 2 packages looked up, 1 vulnerabilities" in run().stdout


def _structure(*folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, ROOT / ".ci/structure.py", *folder], capture_output=True, text=True, check=False
    )


def test_the_package_has_no_cycles_empty_names_or_long_functions() -> None:
    done = _structure()
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("files", "finding"),
    [
        ({"a.py": "from fake import b", "b.py": "import fake.a"}, "import cycle fake.a -> fake.b -> fake.a"),
        ({"a.py": "from .b import f", "b.py": "from .c import f", "c.py": "from .a import f"}, "import cycle fake."),
        ({"a.py": "if True:\n    from fake.b import f", "b.py": "from fake.a import g"}, "a.py:2: import cycle fake.a"),
        ({"a.py": "x = 1\n\none = 2"}, "a.py:3: variable one"),
        ({"a.py": "def f(x, *, given=None): ..."}, "a.py:1: variable given"),
        ({"a.py": "x = [some for some in []]"}, "a.py:1: variable some"),
        ({"a.py": "for x, (own, _) in []: ..."}, "a.py:1: variable own"),
        ({"a.py": "with open('x') as asked: ..."}, "a.py:1: variable asked"),
        ({"a.py": "\ndef f():\n" + "    x = 1\n" * 100}, "a.py:2: function f has 101 lines"),
    ],
)
def test_structure_reports_each_mistake_in_one_line(tmp_path: Path, files: dict[str, str], finding: str) -> None:
    _write_package(tmp_path, files)
    done = _structure(tmp_path / "fake")
    assert finding in done.stdout
    assert done.stdout.count("\n") == done.returncode == 1


def test_structure_accepts_imports_that_do_not_run_when_a_module_is_loaded(tmp_path: Path) -> None:
    later = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import fake.a\ndef f():\n    import fake.a\n"
    _write_package(tmp_path, {"a.py": "import fake.b\nfrom fake.c import x", "b.py": later, "c.py": "x = {'one': 1}"})
    assert _structure(tmp_path / "fake").returncode == 0


def _write_package(folder: Path, files: dict[str, str]) -> None:
    (folder / "fake").mkdir()
    for name, text in {"__init__.py": "", **files}.items():
        (folder / "fake" / name).write_text(text)


def test_the_lock_file_has_every_package_for_development_with_hashes() -> None:
    lock = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("requirements.lock", "torch.lock"))
    blocks = dict(
        re.findall(r"^([\w.-]+)==[^\n]*\\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock, re.MULTILINE)
    )
    names = re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)
    assert set(names) == blocks.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in ("dev", "docs", "ja", "ko", "serve") for one in extras[name])]
    direct = {re.split(r"[^\w-]", requirement, maxsplit=1)[0].lower() for requirement in wanted}
    assert direct - {"transduce"} <= set(names)


def test_the_sbom_of_a_wheel_lists_its_files_and_what_it_needs(tmp_path: Path) -> None:
    wheel = tmp_path / "transduce-0.1.0-py3-none-any.whl"
    metadata = "Name: transduce\nVersion: 0.1.0\nLicense-Expression: Apache-2.0\n"
    metadata += "Requires-Dist: numpy>=1\nRequires-Dist: rich\nRequires-Dist: fastapi; extra == 'serve'\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("transduce/a.py", "x = 1\n")
        archive.writestr("transduce-0.1.0.dist-info/METADATA", metadata)
        archive.writestr("transduce-0.1.0.dist-info/RECORD", "transduce/a.py,,\n")
    for _ in range(2):  # the second time, it is replaced
        subprocess.run([sys.executable, ROOT / ".ci/sbom.py", wheel], check=True, capture_output=True)
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(archive.namelist()) == sorted(set(archive.namelist()))
        content = archive.read("transduce-0.1.0.dist-info/sboms/transduce.cdx.json")
        record = archive.read("transduce-0.1.0.dist-info/RECORD").decode()
    assert record.count("sboms/transduce.cdx.json,sha256=") == 1
    assert content == wheel.with_suffix(".cdx.json").read_bytes()
    sbom = json.loads(content)
    assert (sbom["bomFormat"], sbom["metadata"]["component"]["purl"]) == ("CycloneDX", "pkg:pypi/transduce@0.1.0")
    assert [file["name"] for file in sbom["metadata"]["component"]["components"]] == ["transduce/a.py"]
    names = [component["name"] for component in sbom["components"]]
    assert {"numpy", "rich", "markdown-it-py"} <= set(names)
    assert "fastapi" not in names
    assert all(component["purl"].startswith("pkg:pypi/") for component in sbom["components"])
