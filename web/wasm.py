"""Compiles the C sources of engine native to WebAssembly, into the package: `make wasm`.

There are three engines with the same results: for any browser with SIMD, and for browsers with relaxed SIMD on
processors whose dot products take signed or unsigned activations. `engines.json` has the digests of the sources and of
what was made of them, so that a test without the compiler finds out whether they are up to date.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from transduce.fast.native.prebuilt import source_digest

ROOT = Path(__file__).parents[1]
OUT = ROOT / "src/transduce/web/static"
EXPORTS = (
    *("encode", "step", "read_floats", "fill_positions", "pack_weights", "pack_int8_weights", "layout"),
    *("instructions", "malloc", "free", "observe", "apply_floats", "zero_inputs", "process_tokens", "cross_size"),
    "scratch_size",
)
FLAGS = (
    *("-target", "wasm32-wasi", "-mexec-model=reactor", "-O3", "-g0", "-s", "-Wl,--gc-sections"),
    # Products and sums are rounded one by one, as the portable C code is without optimisations of its arithmetic.
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *(f"-Wl,--export={name}" for name in EXPORTS),
)
_CPU = "-mcpu=generic+simd128+bulk_memory+nontrapping_fptoint"
ENGINES = {
    "simd": [_CPU],
    "signed": [f"{_CPU}+relaxed_simd"],
    "unsigned": [f"{_CPU}+relaxed_simd", "-DUNSIGNED_ACTIVATIONS"],
}


def main() -> None:
    """Compile the engines."""
    compiler = [sys.executable, "-m", "ziglang", "cc"]
    OUT.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name, flags in ENGINES.items():
        path = OUT / f"engine-{name}.wasm"
        source = ROOT / "src/transduce/fast/native/decoder.c"
        subprocess.run([*compiler, *FLAGS, *flags, str(source), "-o", str(path)], check=True)
        path.chmod(0o644)
        digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    record = {"sources": source_digest(), "engines": digests}
    (OUT / "engines.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
