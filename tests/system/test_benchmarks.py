"""Every benchmark still works: each runs with --smoke, as a user would run it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTING = {
    "bundled_model": ["sentences", "rounds", "threads"],
    "data_check": ["pairs"],
    "decode cpu": ["vocabulary", "tokens in and out", "rounds"],
    "generate": ["vocabulary", "prompt", "new_tokens"],
    "generate_cpu": ["vocabulary", "prompt", "new_tokens", "threads", "rounds", "bandwidth"],
    "glossary": ["model", "engine", "lines", "terms", "rounds"],
    "gpu_suite": ["vocabulary", "tokens in and out", "rounds", "batch tokens", "pairs", "steps a round"],
    "imported": ["vocabulary", "tokens in and out", "rounds", "threads", "largest difference of logits"],
    "robustness": ["model", "engine", "lines", "beam"],
    "serve": ["model", "sentences", "clients"],
    "shakespeare": ["characters", "context", "steps", "threads"],
    "train_cpu": ["model", "vocabulary", "batch tokens"],
    "train_language_model": ["vocabulary", "length", "windows"],
    "translate_ray": ["model", "lines", "workers", "rounds", "speed of Ray / plain"],
}
"""Benchmarks, and what each prints of its setting besides the machine, versions and seed; train_gpu and decode on a GPU
are parts of gpu_suite."""
NEEDS = {
    "generate": "triton",
    "gpu_suite": "triton",
    "imported": "transformers",
    "serve": "fastapi",
    "translate_ray": "ray",
}
PATIENCE = 900
"""Seconds after which a benchmark counts as hanging."""


@pytest.mark.parametrize("name", SETTING)
def test_a_benchmark_runs_and_prints_its_setting(name: str, tmp_path: Path) -> None:
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    script, *where = name.split()
    command = [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), *where, "--smoke"]
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    recorded = {path: path.read_bytes() for path in (ROOT / "benchmarks").glob("*.json")}
    result = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    for fact in ("machine", "python", "torch", "numpy", "seed", *SETTING[name]):
        assert any(line.startswith(f"{fact}: ") for line in lines), f"no {fact} in\n{result.stdout}"
    assert recorded == {path: path.read_bytes() for path in (ROOT / "benchmarks").glob("*.json")}


def test_every_benchmark_is_tested() -> None:
    paths = (ROOT / "benchmarks").glob("*.py")
    scripts = {path.stem for path in paths if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")}
    assert scripts == {name.split()[0] for name in SETTING} | {"train_gpu"}
