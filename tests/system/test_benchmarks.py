"""Every benchmark still works: each runs with --smoke, as a user would run it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ["bundled_model", "data_check", "decode cpu", "decode gpu", "serve", "train_cpu", "train_gpu"]
NEEDS = {"decode gpu": "triton", "serve": "fastapi"}
SETTING = ("machine: ", "python: ", "torch: ", "numpy: ", "seed: ")
SIZES = {
    "bundled_model": ("sentences: ", "rounds: ", "threads: "),
    "data_check": ("pairs: ",),
    "decode cpu": ("vocabulary: ", "tokens in and out: ", "rounds: "),
    "decode gpu": ("vocabulary: ", "tokens in and out: ", "rounds: "),
    "serve": ("model: ", "sentences: ", "clients: "),
    "train_cpu": ("model: ", "vocabulary: ", "batch tokens: "),
    "train_gpu": ("vocabulary: ", "batch tokens: ", "pairs: ", "steps a round: "),
}
PATIENCE = 300
"""Seconds after which a benchmark counts as hanging."""


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_runs_and_prints_its_setting(name: str, tmp_path: Path) -> None:
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    script, *where = name.split()
    command = [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), *where, "--smoke"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    recorded = {path: path.read_bytes() for path in (ROOT / "benchmarks").glob("*.json")}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=PATIENCE
    )
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    for start in (*SETTING, *SIZES[name]):
        assert any(line.startswith(start) and line != start for line in lines), f"{start!r} is not in\n{result.stdout}"
    assert recorded == {path: path.read_bytes() for path in (ROOT / "benchmarks").glob("*.json")}


def test_every_benchmark_is_tested() -> None:
    scripts = {
        path.stem for path in (ROOT / "benchmarks").glob("*.py") if 'if __name__ == "__main__":' in path.read_text()
    }
    assert scripts - {"gpu_suite"} == {name.split()[0] for name in BENCHMARKS}
