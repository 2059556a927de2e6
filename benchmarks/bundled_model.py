"""The bundled model, or another one: load time, and sentences of eight words translated per second.

    python benchmarks/bundled_model.py [--model FOLDER] [--to de] [--threads 2] [--beam 1]

The load time is that of `Translator.load` in a new process, without the import of torch, which is printed separately.
The sentences are those of eight words in the demo corpus: one at a time, as an interactive user sends them, and 256 at
once.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from setting import SEED, make_parser, print_setting, write_results

from transduce.corpora.demo.corpus import demo_corpus
from transduce.translation.translator import Translator

WORDS = 8
LOAD = """
import sys, time
start = time.perf_counter()
from transduce.translation.translator import Translator
imported = time.perf_counter()
Translator.load(sys.argv[1] if sys.argv[1:] else None)
print(imported - start, time.perf_counter() - imported)
"""


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--to", help="target language; the bundled model translates to German if it is not given")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--beam", type=int, default=1)
    options = parser.parse_args()
    to = options.to or (None if options.model else "de")
    rounds, sentences, corpus_size = (1, 4, 1000) if options.smoke else (5, 256, 50_000)
    setting = print_setting(
        model=options.model or "bundled", rounds=rounds, sentences=sentences, threads=options.threads, seed=SEED
    )

    command = [sys.executable, "-c", LOAD, *([str(options.model)] if options.model else [])]
    times = [subprocess.run(command, capture_output=True, check=True, text=True).stdout.split() for _ in range(rounds)]
    imports, loads = ([float(seconds) for seconds in column] for column in zip(*times, strict=True))
    print(f"import {statistics.median(imports):.2f} s, load {statistics.median(loads):.2f} s ({_range(loads)})")

    translator = Translator.load(options.model, threads=options.threads, beam=options.beam)
    corpus = demo_corpus(SEED, train=corpus_size, valid=0, test=0)
    texts = [source for source, _ in corpus.train if len(source.split()) == WORDS][:sentences]
    one_by_one, at_once = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        for text in texts:
            translator.translate(text, to=to)
        middle = time.perf_counter()
        translator.translate(texts, to=to)
        one_by_one.append(len(texts) / (middle - start))
        at_once.append(len(texts) / (time.perf_counter() - middle))
    print(f"{translator.engine.description}, beam {options.beam}")
    for name, speeds in (("one by one", one_by_one), (f"{len(texts)} at once", at_once)):
        print(f"{name}: {statistics.median(speeds):.0f} sentences/s ({_range(speeds)})")
    figures = {
        "import, s": statistics.median(imports),
        "load, s": statistics.median(loads),
        "one by one, sentences/s": statistics.median(one_by_one),
        f"{len(texts)} at once, sentences/s": statistics.median(at_once),
    }
    search = "greedy" if options.beam == 1 else f"beam {options.beam}"
    write_results(options, setting, {f"{search}, sentences of {WORDS} words": figures})


def _range(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}"


if __name__ == "__main__":
    main()
