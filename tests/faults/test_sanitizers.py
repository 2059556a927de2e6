"""The C engine, built with AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer, in random cases."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fault_injection import repetitions

TESTS = Path(__file__).parents[1]
CASES = repetitions(4, 50_000)
SANITIZERS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"],
    "thread": ["-fsanitize=thread"],
}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's
    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",  # such as torch's
}
RUN = """
import runpy, sys
from transduce.engines.native import library
library._TIMEOUT = 3600
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Python code that runs a script; compiling may take as long as a busy machine needs."""


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_a_sanitizer_finds_nothing_in_random_cases(sanitizer: str, tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    runtime = {"address": "libasan.so", "thread": "libtsan.so"}[sanitizer]
    path = subprocess.check_output([compiler, f"-print-file-name={runtime}"], text=True).strip()
    if not Path(path).is_absolute():
        pytest.skip(f"needs {runtime}")
    environment = {
        **os.environ,
        **OPTIONS,
        "CC": " ".join([compiler, "-g", *SANITIZERS[sanitizer]]),
        "LD_PRELOAD": path,
        "OMP_NUM_THREADS": "1",
        "TRANSDUCE_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-c", RUN, TESTS / "random_native_cases.py", "1", str(CASES)]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    assert outcome.stdout.startswith(f"{CASES} cases")
    assert "Sanitizer" not in outcome.stderr
