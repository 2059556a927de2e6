"""The bundled model, or another: seconds to load it, and sentences of eight words translated in a second.

    python benchmarks/bundled_model.py [--model FOLDER] [--threads 2] [--beam 1]

Loading is `Translator.load` in a new process, without the import of torch, which is printed beside it. The sentences
are those of eight words in the demo corpus: one by one, as a person asks, and 256 at once.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from setting import describe

from transduce import Translator
from transduce.corpora.demo import demo_corpus

ROUNDS, SENTENCES, WORDS = 5, 256, 8
LOAD = """
import sys, time
began = time.perf_counter()
from transduce.translator import Translator
imported = time.perf_counter()
Translator.load(sys.argv[1] if sys.argv[1:] else None)
print(imported - began, time.perf_counter() - imported)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--beam", type=int, default=1)
    options = parser.parse_args()
    for key, value in describe().items():
        print(f"{key}: {value}")

    command = [sys.executable, "-c", LOAD, *([str(options.model)] if options.model else [])]
    times = [subprocess.run(command, capture_output=True, check=True, text=True).stdout.split() for _ in range(ROUNDS)]
    imports, loads = ([float(one) for one in column] for column in zip(*times, strict=True))
    print(f"import {statistics.median(imports):.2f} s, load {statistics.median(loads):.2f} s ({_range(loads)})")

    translator = Translator.load(options.model, threads=options.threads, beam=options.beam)
    texts = [source for source, _ in demo_corpus().train if len(source.split()) == WORDS][:SENTENCES]
    alone, together = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for text in texts:
            translator.translate(text)
        between = time.perf_counter()
        translator.translate(texts)
        alone.append(len(texts) / (between - began))
        together.append(len(texts) / (time.perf_counter() - between))
    print(f"{translator.engine.description}, beam {options.beam}")
    for name, speeds in (("one by one", alone), (f"{len(texts)} at once", together)):
        print(f"{name}: {statistics.median(speeds):.0f} sentences/s ({_range(speeds)})")


def _range(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}"


if __name__ == "__main__":
    main()
