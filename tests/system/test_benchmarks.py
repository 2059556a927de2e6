"""Every benchmark still works: each runs with --smoke, as a user would run it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETTING = {
    "bundled_model": ["sentences", "rounds", "threads"],
    "data_check": ["pairs"],
    "decode cpu": ["vocabulary", "tokens in and out", "rounds"],
    "exported": ["model", "lines", "beams", "threads"],
    "generate": ["vocabulary", "prompt", "new_tokens"],
    "generate_cpu": ["vocabulary", "prompt", "new_tokens", "threads", "rounds", "bandwidth"],
    "glossary": ["model", "engine", "lines", "terms", "rounds"],
    "gpu_suite": ["vocabulary", "tokens in and out", "rounds"],
    "imported": ["vocabulary", "tokens in and out", "rounds", "threads", "largest difference of logits"],
    "robustness": ["model", "engine", "lines", "beam"],
    "serve": ["model", "sentences", "clients"],
    "shakespeare": ["characters", "context", "steps", "threads"],
    "train_gpu": ["vocabulary", "rounds", "batch tokens", "pairs", "steps a round"],
    "train_cpu": ["model", "vocabulary", "batch tokens"],
    "train_language_model": ["vocabulary", "length", "windows"],
    "translate_ray": ["model", "lines", "workers", "rounds", "speed of Ray / plain"],
}
"""Benchmarks, and what each prints of its setting besides the machine, versions and seed; decode on a GPU is a part of
gpu_suite."""
NEEDS = {
    "exported": "onnxruntime",
    "generate": "triton",
    "gpu_suite": "triton",
    "imported": "transformers",
    "serve": "fastapi",
    "translate_ray": "ray",
}

PEERS = ("transformers.models.gpt2.modeling_gpt2", "transformers.models.marian.modeling_marian")
"""What many benchmarks compare us with; importing it takes two seconds."""


@pytest.mark.parametrize("name", SETTING)
def test_a_benchmark_runs_and_prints_its_setting(name: str, transduce: Any, tmp_path: Path) -> None:
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    script, *where = name.split()
    recorded = {path: path.read_bytes() for path in (ROOT / "benchmarks").glob("*.json")}
    program = ROOT / "benchmarks" / f"{script}.py"
    result = transduce(*where, "--smoke", program=program, cwd=tmp_path, preload=PEERS)
    assert result.code == 0, result.out + result.err
    lines = result.out.splitlines()
    for fact in ("machine", "python", "torch", "numpy", "seed", *SETTING[name]):
        assert any(line.startswith(f"{fact}: ") for line in lines), f"no {fact} in\n{result.out}"
    assert recorded == {path: path.read_bytes() for path in (ROOT / "benchmarks").glob("*.json")}


def test_every_benchmark_is_tested() -> None:
    paths = (ROOT / "benchmarks").glob("*.py")
    scripts = {path.stem for path in paths if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")}
    assert scripts == {name.split()[0] for name in SETTING}
