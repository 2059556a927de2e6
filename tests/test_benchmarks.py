"""Every benchmark still works: each runs with --smoke, as a user would run it."""

import importlib
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fault_injection import FULL

ROOT = Path(__file__).parents[1]
SETTING = {
    "bundled_model": ["sentences", "rounds", "threads"],
    "data_check": ["pairs"],
    "decode cpu": ["vocabulary", "tokens in and out", "rounds"],
    "embed_cpu": ["texts", "threads", "rounds"],
    "everyday": ["model", "engine", "sentences", "beam"],
    "exported": ["model", "lines", "beams", "threads"],
    "generate": ["vocabulary", "prompt", "new_tokens"],
    "generate_cpu": ["vocabulary", "prompt", "new_tokens", "threads", "rounds", "bandwidth"],
    "glossary": ["model", "engine", "lines", "terms", "rounds"],
    "gpu_suite": ["vocabulary", "tokens in and out", "rounds"],
    "imported": ["vocabulary", "tokens in and out", "rounds", "threads", "largest difference of logits"],
    "int8_quality": ["model", "text", "texts", "tokens"],
    "opus_mt": ["lines", "lines, beam 4", "threads"],
    "prepare": ["pairs", "distinct", "megabytes", "vocabulary"],
    "robustness": ["model", "engine", "lines", "beam"],
    "serve": ["model", "sentences", "clients"],
    "serve_files": ["seconds", "load average before"],
    "serve_load": ["model", "clients", "seconds", "load average before", "load average after"],
    "shakespeare": ["characters", "context", "steps", "threads"],
    "train_gpu": ["vocabulary", "rounds", "batch tokens", "pairs", "steps a round"],
    "train_cpu": ["model", "vocabulary", "batch tokens"],
    "train_language_model": ["vocabulary", "length", "windows"],
    "translate_file": ["model", "lines", "words", "beam", "threads", "rounds"],
    "translate_ray": ["model", "lines", "workers", "rounds", "speed of Ray / plain"],
    "wasm": ["browser", "instructions", "sentences", "rounds"],
}
"""Benchmarks, and what each prints of its setting besides the machine, versions and seed; decode on a GPU is a part of
gpu_suite."""
NEEDS = {
    "exported": "onnxruntime",
    "generate": "triton",
    "gpu_suite": "triton",
    "imported": "transformers",
    "opus_mt": "transformers",
    "serve": "fastapi",
    "serve_files": "fastapi",
    "serve_load": "fastapi",
    "translate_ray": "ray",
    "wasm": "playwright",
}

PEERS = ("transformers.models.gpt2.modeling_gpt2", "transformers.models.marian.modeling_marian")
"""What many benchmarks compare us with; importing it takes two seconds."""


@pytest.mark.parametrize("name", SETTING)
def test_a_benchmark_runs_and_prints_its_setting(name: str, transduce: Any, tmp_path: Path) -> None:
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    if name == "wasm" and shutil.which("chromium") is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    if name == "translate_ray" and not FULL:
        pytest.skip("starts Ray again; run by `make faults`")
    script, *where = name.split()
    recorded = {path: path.read_bytes() for path in (ROOT / "benchmarks").glob("*.json")}
    program, out = ROOT / "benchmarks" / f"{script}.py", tmp_path / "figures.json"
    result = transduce(*where, "--smoke", "--out", out, program=program, cwd=tmp_path, preload=PEERS)
    assert result.code == 0, result.out + result.err
    lines = result.out.splitlines()
    for fact in ("machine", "python", "torch", "numpy", "seed", *SETTING[name]):
        assert any(line.startswith(f"{fact}: ") for line in lines), f"no {fact} in\n{result.out}"
    assert recorded == {path: path.read_bytes() for path in (ROOT / "benchmarks").glob("*.json")}
    if name != "gpu_suite":  # its file is a summary
        (entry,) = json.loads(out.read_text(encoding="utf-8")).values()
        assert entry["command"] == " ".join(["python", f"benchmarks/{script}.py", *where, "--smoke"])
        assert entry["processor"]
        assert entry["results"]
        for row in entry["results"].values():
            assert all(isinstance(figure, int | float | list) for figure in row.values())


def test_a_benchmark_replaces_only_its_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    setting = importlib.import_module("setting")
    out = tmp_path / "figures.json"
    out.write_text(json.dumps({"other": {"results": {}}, "decode": {"what": "Speed", "results": {"old": {}}}}))
    monkeypatch.setattr(
        "sys.argv", ["benchmarks/decode.py", "cpu", "--out", str(out), "--rounds", "3", "--name=decode"]
    )
    options = setting.make_parser(None).parse_known_args()[0]
    setting.write_results(options, {"processor": "a CPU", "torch": "2"}, {"greedy": {"tokens/s": 3.5}})
    entries = json.loads(out.read_text(encoding="utf-8"))
    assert entries["other"] == {"results": {}}
    assert entries["decode"]["what"] == "Speed"
    assert entries["decode"]["command"] == "python benchmarks/decode.py cpu --rounds 3"
    assert entries["decode"]["results"] == {"greedy": {"tokens/s": 3.5}}
    assert (entries["decode"]["processor"], entries["decode"]["setting"]) == ("a CPU", {"torch": "2"})


@pytest.mark.parametrize(
    ("speeds", "outcome"),
    [([10, 50, 100, 102, 90], (4, True)), ([100, 100], (2, True)), ([1, 2, 4, 8, 16], (5, False))],
)
def test_the_peer_is_warm_if_two_rounds_agree(
    speeds: list[float], outcome: tuple[int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    rounds = iter(speeds)
    assert importlib.import_module("train_gpu").warm_up(lambda: next(rounds), 5) == outcome


def test_every_benchmark_is_tested() -> None:
    paths = (ROOT / "benchmarks").glob("*.py")
    scripts = {path.stem for path in paths if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")}
    assert scripts == {name.split()[0] for name in SETTING}
