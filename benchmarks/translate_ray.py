"""`transduce translate --ray` against the same command without Ray, on one machine, in turns.

    python benchmarks/translate_ray.py [--lines 20000] [--workers 2] [--rounds 3] [--model FOLDER] [--text FILE]

Ray has `--workers` workers with one thread each, the other command as many threads. Both translate the same lines, by
default of the demo corpus, with the same model, by default the bundled one; the outputs must be identical. The time is
that of the entire command. As Ray has to start a dozen processes, each round also translates one line, and the speeds
are compared with and without this start. Processor time is that of all processes.
"""

import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path

from setting import SEED, make_parser, print_setting, write_results

from transduce.corpora.demo.corpus import demo_corpus

PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--to", help="target language; the bundled model translates to German if it is not given")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--text", type=Path, help="a file of source text")
    options = parser.parse_args()
    count, workers, rounds = (8, 1, 1) if options.smoke else (options.lines, options.workers, options.rounds)
    setting = print_setting(
        model=options.model or "bundled", lines=count, workers=workers, rounds=rounds, beam=options.beam,
        ray=version("ray"), seed=SEED,
    )  # fmt: skip
    to = options.to or (None if options.model else "de")
    words = ["translate", "--beam", options.beam, *(["-m", options.model] if options.model else [])]
    words += ["--to", to] if to else []
    commands = {"plain": [*words, "--threads", workers], "Ray": [*words, "--ray", "--workers", workers]}
    times: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        lines = list(islice(cycle(_texts(options.text, count)), count))
        files = {part: folder / f"{part}.txt" for part in (["all"] if options.smoke else ["start", "all"])}
        for part, path in files.items():
            path.write_text("".join(f"{line}\n" for line in (lines if part == "all" else lines[:1])), encoding="utf-8")
        for number in range(rounds):
            for part, path in files.items():
                for name in commands if number % 2 == 0 else reversed(commands):
                    # Without Ray, --out is a file; with it, a folder.
                    out = folder / name if name == "Ray" else folder / f"{name}.{path.name}"
                    times.setdefault(f"{name} {part}", []).append(_run(*commands[name], path, "--out", out))
                if (folder / "Ray" / path.name).read_bytes() != (folder / f"plain.{path.name}").read_bytes():
                    raise SystemExit("the outputs differ")
    wall = {name: statistics.median(one for one, _ in pairs) for name, pairs in times.items()}
    for name, pairs in times.items():
        processor = statistics.median(one for _, one in pairs)
        print(f"{name}: {wall[name]:.1f} s, {processor:.1f} s of processor time, of all processes")
    ratios = {"speed of Ray / plain": wall["plain all"] / wall["Ray all"]}
    if not options.smoke:
        plain, ray = (wall[f"{name} all"] - wall[f"{name} start"] for name in commands)
        ratios["without the start"] = plain / ray
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    seconds = {f"{name}, s": value for name, value in wall.items()}
    write_results(options, setting, {f"{count:,} lines, beam {options.beam}": {**seconds, **ratios}})


def _texts(path: Path | None, count: int) -> list[str]:
    if path:
        return path.read_text(encoding="utf-8").splitlines()
    return [source for source, _ in demo_corpus(SEED, train=count, valid=0, test=0).train]


def _run(*words: object) -> tuple[float, float]:
    """The time of a command, and the processor time of it and all processes that it starts."""
    if sys.platform == "linux":  # processes that outlive their parent become children of this one, and are counted
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "transduce", *map(str, words)], check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
