"""`make check`: unsafe deserialization is rejected, and the audit reports what it checked."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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

    assert run().stdout == "pip-audit: skipped, nothing could be looked up (no network)\n"
    assert run().returncode == 0
    answer = {
        "dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}, {"name": "b", "skip_reason": ""}]
    }
    (fake / "__main__.py").write_text(f"print({json.dumps(json.dumps(answer))})")
    assert run().returncode == 1
    assert "a 1: CVE-1" in run().stdout
    assert "1 of 2 packages looked up, 1 vulnerabilities" in run().stdout
