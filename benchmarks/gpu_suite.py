"""Everything that only a CUDA machine can check, in a few minutes: the GPU tests, then both GPU benchmarks.

    make gpu [OUT=summary.json]
    python3 benchmarks/gpu_suite.py [--out summary.json]

The tests run in several processes at once, the benchmarks one after the other and without peers. It needs no
installation: Python with torch, Triton, sentencepiece, safetensors, sacrebleu, typer, rich and pytest.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
TESTS = {
    "tests/fast/test_kernels.py": 4,
    "tests/fast/test_attention_kernels.py": 4,
    "tests/fast/test_engine_conformance.py": 4,
    "tests/fast/test_fast_engines.py": 2,
    "tests/fast/test_float8.py": 1,
    "tests/fast/test_products.py": 1,
    "tests/nn/test_attention_implementations.py": 1,
    "tests/fast/test_generation_engines.py": 1,
    "tests/training/test_gpu_processes.py": 2,
    "tests/predecessors/test_predecessors_command.py": 1,
    "tests/training/test_steps.py": 1,
    "tests/training/test_r_drop.py": 1,
}
"""Test files, the slowest first, and the number of processes among which the tests of each are divided."""
BENCHMARKS = {
    "train_gpu": ["base", "big", "--no-peers", "--rounds", "3", "--steps", "50"],
    "decode": ["gpu", "--no-peers", "--rounds", "5"],
}
SMOKE_TESTS = {"tests/parsing/test_brackets.py": 1}
SMOKE_BENCHMARKS = {"decode": ["gpu", "--smoke", "--no-peers"]}
AT_ONCE = 12
TEST_SECONDS, ALL_SECONDS = 290, 470
"""The time limits of the tests, and of the tests and the benchmarks together; a process beyond its limit is stopped."""


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    code: int | None
    """None if it was stopped at the time limit."""
    seconds: float

    @property
    def outcome(self) -> str:
        """How it ended, in a few words."""
        return {None: "stopped at the time limit", 0: "ok"}.get(self.code, f"exit code {self.code}")


def main() -> None:
    """Run the tests and the benchmarks, print a summary, exit with 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="only check that it works: one test file, one benchmark")
    parser.add_argument("--out", type=Path, help="write the summary here, as JSON")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tests = run_tests(SMOKE_TESTS if options.smoke else TESTS, Path(folder), start + TEST_SECONDS)
        benchmarks = SMOKE_BENCHMARKS if options.smoke else BENCHMARKS
        figures = run_benchmarks(benchmarks, Path(folder), start + ALL_SECONDS)
    summary = {"tests": tests, "benchmarks": figures, "seconds": round(time.monotonic() - start, 1)}
    print_summary(summary)
    if options.out:
        options.out.write_text(json.dumps(summary, indent=1) + "\n")
    sys.exit(any(part["outcome"] != "ok" for part in (*tests.values(), *figures.values())))


def run_tests(tests: dict[str, int], folder: Path, deadline: float) -> dict[str, dict[str, Any]]:
    """Run every test file in one process or several; returns the counts of each process."""
    shards = [f"{name} {shard}/{count}" for name, count in tests.items() for shard in range(1, count + 1)]

    def run_shard(number: int) -> dict[str, Any]:
        name, shard = shards[number].split()
        report = folder / f"{number}.xml"
        arguments = ["-m", "pytest", "-rs", "--tb=short", f"--junitxml={report}", name]
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            # These tests need no plugins, and loading those that are installed would take seconds.
            finished = run(arguments, deadline, output, TEST_SHARD=shard, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
            output.seek(0)
            printed = output.read()
        counts = read_counts(report) if report.exists() else {}
        progress(f"{shards[number]}: {finished.outcome}, {counts}, {finished.seconds:.0f} s")
        if finished.code != 0:
            print(printed, flush=True)
        return {"outcome": finished.outcome, **counts, "seconds": round(finished.seconds, 1)}

    progress(f"tests: {len(tests)} files in {len(shards)} processes, {AT_ONCE} at a time")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(shards, pool.map(run_shard, range(len(shards))), strict=True))


def read_counts(report: Path) -> dict[str, int]:
    """The numbers of tests that passed, failed and were skipped, from pytest's XML report."""
    suite = next(ElementTree.parse(report).iter("testsuite"))
    total, errors, failed, skipped = (int(suite.get(key, 0)) for key in ("tests", "errors", "failures", "skipped"))
    return {"passed": total - errors - failed - skipped, "failed": errors + failed, "skipped": skipped}


def run_benchmarks(benchmarks: dict[str, list[str]], folder: Path, deadline: float) -> dict[str, dict[str, Any]]:
    """Run the benchmarks one after the other; returns the figures of each."""
    summary = {}
    for name, arguments in benchmarks.items():
        progress(f"{name}.py {' '.join(arguments)}")
        results = folder / f"{name}.json"
        finished = run([f"benchmarks/{name}.py", *arguments, "--out", str(results)], deadline)
        figures = (
            dict(read_figures(json.loads(results.read_text(encoding="utf-8"))[name]["results"]))
            if results.exists()
            else {}
        )
        progress(f"{name}: {finished.outcome}, {finished.seconds:.0f} s")
        summary[name] = {"outcome": finished.outcome, **figures, "seconds": round(finished.seconds, 1)}
    return summary


def read_figures(results: dict[str, dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """The tokens per second of every case of a benchmark."""
    for case, facts in results.items():
        for name, value in facts.items():
            if name in ("transduce", "transduce gpu"):
                yield f"{case}, tokens/s", round(value)


def run(arguments: Sequence[str], deadline: float, output: IO[str] | None = None, **variables: str) -> Finished:
    """Run this Python with these arguments, until the deadline at most; what it prints goes to `output`, if given."""
    command, start = [sys.executable, *arguments], time.monotonic()
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **variables}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            code = process.wait(max(deadline - start, 1))
        except subprocess.TimeoutExpired:
            process.kill()
            code = None
    return Finished(code, time.monotonic() - start)


def progress(line: str) -> None:
    """Print a line at once."""
    print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)


def print_summary(summary: dict[str, Any]) -> None:
    """Print a line for each test file and each figure."""
    tests = summary["tests"]
    print("\nsummary")
    for name, facts in tests.items():
        counts = ", ".join(f"{facts[key]} {key}" for key in ("passed", "failed", "skipped") if key in facts)
        print(f"  {name}: {facts['outcome']}, {counts or 'no report'}, {facts['seconds']} s")
    totals = {key: sum(facts.get(key, 0) for facts in tests.values()) for key in ("passed", "failed", "skipped")}
    print("  all tests: " + ", ".join(f"{count} {key}" for key, count in totals.items()))
    for name, facts in summary["benchmarks"].items():
        print(f"  {name}: {facts['outcome']}, {facts['seconds']} s")
        for key, value in facts.items():
            if key not in ("outcome", "seconds"):
                print(f"    {key}: {value:,}")
    print(f"  {summary['seconds']} s in all", flush=True)


if __name__ == "__main__":
    main()
