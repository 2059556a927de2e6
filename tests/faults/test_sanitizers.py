"""The C engine, built with AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer, in random cases."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fault_injection import FULL, repetitions
from random_language_models import draw_settings
from random_native_cases import language_model_shapes

from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig

TESTS = Path(__file__).parents[1]
CASES = repetitions(40, 50_000)
CHUNK = 5_000
"""Cases of one process."""
SANITIZERS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"],
    "thread": ["-fsanitize=thread"],
}
FLAGS = ["-g1", "-DSPINS=10", "-DPENALTY=0"]
"""Spinning would take most of the time, as there are more threads than cores, and all of these shall work."""
WORDS: dict[str, list[str]] = {"address": [], "thread": ["--concurrent"]}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's
    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",  # such as torch's
}
RUN = f"""
import os, runpy, sys
del os.environ["LD_PRELOAD"]
from transduce.fast.native import library, prebuilt
library._TIMEOUT = 3600
prebuilt.FLAGS += {() if FULL else ("-O0",)}
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""
"""Python code that runs a script, and leaves out the orderly shutdown of torch, which takes a second.

The compiler runs without the sanitizer's runtime, and may take as long as a busy machine needs. For a few cases it
does not optimize, as compiling would be most of the work.
"""


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
        "CC": " ".join([compiler, *FLAGS, *SANITIZERS[sanitizer]]),
        "LD_PRELOAD": path,
        "OMP_NUM_THREADS": "1",
        "TRANSDUCE_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    if sanitizer == "address":
        environment["PYTHONMALLOC"] = "malloc"  # arrays and structures have memory of their own
    script = TESTS / "random_native_cases.py"
    for first in range(0, CASES, CHUNK):
        count = min(CHUNK, CASES - first)
        command = [sys.executable, "-c", RUN, script, "1", str(first), str(count), *WORDS[sanitizer]]
        outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if outcome.returncode or "Sanitizer" in outcome.stderr:
            before, _, report = outcome.stderr.rpartition(" of seed 1\n")
            number = before.rpartition("case ")[2]
            pytest.fail(f"case {number} of seed 1: {report[:4000]}")
        assert outcome.stdout.startswith(f"{count} cases")


def test_drawn_language_models_have_the_weights_of_real_ones() -> None:
    for seed in range(20):
        config = DecoderOnlyConfig(dropout=0.0, **draw_settings(random.Random(seed)))
        expected = {name: tuple(x.shape) for name, x in DecoderOnly(config, 17).state_dict().items()}
        assert language_model_shapes(config, 17) == expected
