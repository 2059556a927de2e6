"""Preparing a large corpus: from text to token shards, after a kill in the middle, and again with a warm cache.

    python benchmarks/prepare.py --text europarl.tsv.xz [--pairs 10000000] [--vocabulary 32000]

The corpus repeats the pairs of the text until there are enough; in each further round the words of both sides are
rotated by one more, so that no line occurs twice. Each run is `transduce train` of a tiny model, ended after two steps.
The first is killed as soon as half of the shards are there; the second resumes with the rest; the third finds all.
"""

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from setting import SEED, make_parser, news_lengths, print_setting, write_news_like_text, write_results
from translate_file import LAUNCH

from transduce.cache_folder import cache_folder
from transduce.data.write_corpus import SHARD_PAIRS
from transduce.fast.native.library import load_library
from transduce.files.pairs import Pair, ReadReport, read_pairs

SETTINGS = {
    "model.encoder_layers": 1, "model.decoder_layers": 1, "model.d_model": 64, "model.d_ff": 128, "model.num_heads": 1,
    "train.steps": 2, "train.batch_tokens": 4096, "train.precision": "float32", "train.seed": SEED,
}  # fmt: skip


def main() -> None:
    """Write the corpus, prepare it three times, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("--text", type=Path, nargs="+", help="files of pairs")
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    options = parser.parse_args()
    if not options.text and not options.smoke:
        parser.error("--text is required")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.smoke:
            options.text, options.pairs, options.vocabulary = [folder / "smoke.tsv"], 2 * SHARD_PAIRS + 1, 450
            write_news_like_text(options.text[0], news_lengths(SHARD_PAIRS, 4))
        corpus = folder / "corpus.tsv"
        pairs = list(read_pairs([(str(path),) for path in options.text], ReadReport()))
        write_corpus(corpus, pairs, options.pairs)
        setting = print_setting(
            pairs=options.pairs, distinct=len(pairs), megabytes=round(corpus.stat().st_size / 1e6),
            vocabulary=options.vocabulary, seed=SEED,
        )  # fmt: skip
        del pairs
        cache = folder / "cache"
        cache.mkdir(mode=0o700)
        load_library()  # the engine is compiled before what is measured
        for path in cache_folder().glob("native-*"):
            shutil.copy(path, cache)
        results = {
            "killed with half of the shards": run(corpus, options.vocabulary, cache, options.pairs // SHARD_PAIRS // 2),
            "the rest": run(corpus, options.vocabulary, cache),
            "warm cache": run(corpus, options.vocabulary, cache),
        }
    write_results(options, setting, results)


def write_corpus(path: Path, pairs: list[Pair], wanted: int) -> None:
    """Write `wanted` pairs: in round n, with the words of both sides rotated by n."""
    with path.open("w", encoding="utf-8") as file:
        for rotation in range(-(-wanted // len(pairs))):
            part: Iterable[Pair] = islice(pairs, wanted - rotation * len(pairs))
            file.writelines("\t".join(rotated(text, rotation) for text in pair) + "\n" for pair in part)


def rotated(text: str, by: int) -> str:
    """The words of a text, beginning with another one."""
    words = text.split()
    by %= len(words)
    return " ".join(words[by:] + words[:by])


def run(corpus: Path, vocabulary: int, cache: Path, kill_after: int | None = None) -> dict[str, float]:
    """Train for two steps, or until that many shards are there; seconds, CPU seconds, and the largest process."""
    settings = SETTINGS | {"tokenizer.vocab_size": vocabulary}
    out = tempfile.mkdtemp(dir=cache.parent)
    command = [sys.executable, "-c", LAUNCH, sys.executable, "-u", "-m", "transduce", "train"]
    command += ["--train", str(corpus), "--out", out]
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    environment, start = {**os.environ, "TRANSDUCE_CACHE": str(cache)}, time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True
    )
    if kill_after is not None:
        while len(list(cache.glob("*/*.kept.json"))) < kill_after and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        figures = {"s": time.perf_counter() - start}
    else:
        assert process.stdout is not None
        lines, until_training = [], math.nan
        for line in process.stdout:
            lines.append(line)
            if " parameters on " in line:
                until_training = time.perf_counter() - start
        assert process.wait() == 0, "".join(lines)
        cpu_seconds, megabytes = map(float, lines[-1].split())
        figures = {"until training, s": until_training, "s": time.perf_counter() - start, "CPU s": cpu_seconds}
        figures["largest process, MB"] = megabytes
    print(", ".join(f"{name}: {figure:,.1f}" for name, figure in figures.items()))
    return figures


if __name__ == "__main__":
    main()
