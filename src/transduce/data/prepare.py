"""From text files to a vocabulary and token shards, once: the result is cached under a key of content and settings."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transduce.cache_folder import cache_folder
from transduce.config import require
from transduce.data.encode_worker import SHARD_PAIRS
from transduce.data.shards import TokenShards, write_index
from transduce.disk import digest, flush_folder
from transduce.errors import DataError
from transduce.text.pairs import Pair, ReadReport, entry_suffixes, read_pairs
from transduce.text.sample import Reservoir
from transduce.text.tokenizer import Tokenizer, TokenizerConfig

FORMAT = 4
"""Raised whenever shards made by older code must not be reused."""
_ABANDONED = 7 * 24 * 3600
"""Seconds after which nobody is at work on an unfinished folder."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which text is learnt from."""

    train: tuple[tuple[str, ...], ...] = ()
    """Training pairs, e.g. "pairs.tsv", ["a.tsv", "b.jsonl"] or [["source.txt", "target.txt"]]."""
    valid: tuple[tuple[str, ...], ...] = ()
    """Validation pairs, likewise; without them training goes on unjudged."""
    by_sentence: bool = False
    """Every text is one sentence. Then a text of several is translated sentence by sentence."""
    reverse: bool = False
    """Read the second side of every pair as the source."""
    max_length: int = 256
    """Pairs with more tokens than this on either side are counted and left out."""

    def __post_init__(self) -> None:
        require(1 <= self.max_length < 2**16 - 1, "max_length must be between 1 and 65534")


@dataclass(frozen=True)
class Prepared:
    """What training needs of the data."""

    tokenizer: Tokenizer
    train: TokenShards
    valid: list[Pair]
    sources: dict[str, str]
    """The files of the training text and the sha256 of each."""


def prepare(data: DataConfig, vocabulary: TokenizerConfig | Tokenizer, say: Callable[[str], None]) -> Prepared:
    """The corpus as token shards, from the cache or made now; the vocabulary is learnt from it, or given."""
    require(bool(data.train), "no training text: give --src and --tgt, --train, or data.train in the recipe")
    sources = _digests(data)
    valid = _read_valid(data, say)  # before the long work, so that a slip in its name shows at once
    folder = cache_folder() / _key(data, vocabulary, sources)
    if folder.exists():
        say(f"data: {folder} (prepared before)")
    else:
        _prepare_into(folder, data, vocabulary, sources, say)
    shards = TokenShards(folder)
    for line in shards.index["report"]:
        say(f"data: {line}")
    src, tgt = shards.mean_lengths
    vocab_size = shards.index["vocab_size"]
    say(f"data: {len(shards):,} pairs, {src:.1f} + {tgt:.1f} tokens a pair, a vocabulary of {vocab_size:,}")
    return Prepared(Tokenizer.load(folder / "tokenizer.model"), shards, valid, sources)


def _read_valid(data: DataConfig, say: Callable[[str], None]) -> list[Pair]:
    if not data.valid:
        return []
    report = ReadReport()
    pairs = list(read_pairs(data.valid, report, reverse=data.reverse))
    for line in report.lines():
        say(f"validation data: {line}")
    return pairs


def _key(data: DataConfig, vocabulary: TokenizerConfig | Tokenizer, sources: dict[str, str]) -> str:
    # Files may get other names, but not the suffixes that tell how to read them.
    content = [(entry_suffixes(files), [sources[name] for name in files]) for files in data.train]
    if isinstance(vocabulary, Tokenizer):
        words: Any = hashlib.sha256(vocabulary.model).hexdigest()
    else:
        words = asdict(vocabulary)
    settings = [FORMAT, data.reverse, data.max_length, words]
    return hashlib.sha256(json.dumps([content, settings]).encode()).hexdigest()[:32]


def _digests(data: DataConfig) -> dict[str, str]:
    """What the training files hold now."""
    digests = {}
    for name in (name for files in data.train for name in files):
        try:
            digests[name] = digest(Path(name))
        except OSError as error:
            raise DataError(f"{name}: {error.strerror}") from None
    return digests


def _prepare_into(
    folder: Path,
    data: DataConfig,
    vocabulary: TokenizerConfig | Tokenizer,
    sources: dict[str, str],
    say: Callable[[str], None],
) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        report = ReadReport()
        say("data: reading " + ", ".join(" + ".join(files) for files in data.train))
        tokenizer = _tokenizer(data, vocabulary, report, say)
        tokenizer.save(work / "tokenizer.model")
        say(f"data: encoding {report.pairs:,} pairs")
        too_long = _encode(work, data, report.pairs)
        lines = report.lines()
        if too_long:
            pairs = "pair" if too_long == 1 else "pairs"
            lines.append(f"left out {too_long:,} {pairs} above {data.max_length} tokens (data.max_length)")
        if too_long == report.pairs:
            raise DataError(f"every pair has more than {data.max_length} tokens; raise data.max_length")
        write_index(work, {"vocab_size": tokenizer.vocab_size, "max_length": data.max_length, "report": lines})
        if changed := [name for name, now in _digests(data).items() if now != sources[name]]:
            raise DataError(f"{changed[0]} changed while it was being read; run the same command again")
        flush_folder(work)
        try:
            work.rename(folder)
        except OSError:  # another process prepared the same corpus meanwhile
            if not folder.exists():
                raise
    except OSError as error:
        place = f"{folder.parent}, where prepared text is kept (TRANSDUCE_CACHE names another place)"
        raise DataError(f"{place}: {error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sweep(cache: Path) -> None:
    """Remove what processes left that were killed while they prepared text, days ago."""
    for leftover in cache.glob("*.tmp"):
        if time.time() - leftover.stat().st_mtime > _ABANDONED:
            shutil.rmtree(leftover, ignore_errors=True)


def _tokenizer(
    data: DataConfig, vocabulary: TokenizerConfig | Tokenizer, report: ReadReport, say: Callable[[str], None]
) -> Tokenizer:
    """The vocabulary given, or learnt from a sample of the pairs; reading all of them also fills the report."""
    if isinstance(vocabulary, Tokenizer):
        _sample(data, 0, report)
        return vocabulary
    sample = _sample(data, vocabulary.sample_pairs, report)
    say(f"data: learning a vocabulary of {vocabulary.vocab_size:,} tokens from {len(sample):,} pairs")
    return Tokenizer.train((text for pair in sample for text in pair), vocabulary)


def _sample(data: DataConfig, size: int, report: ReadReport) -> list[Pair]:
    """An even sample of the pairs."""
    sample = Reservoir[Pair](size)
    for pair in read_pairs(data.train, report, reverse=data.reverse):
        sample.offer(pair)
    return sample.kept


def _encode(folder: Path, data: DataConfig, pairs: int) -> int:
    """Write the shards with one process per core; the number of pairs that were too long."""
    job = {"train": data.train, "reverse": data.reverse, "max_length": data.max_length}
    workers = min(os.cpu_count() or 1, -(-pairs // SHARD_PAIRS))
    package_root = str(Path(__file__).parents[2])
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # With -P, and no empty path, nothing is imported from the folder that we happen to be in.
    command = [sys.executable, "-P", "-m", "transduce.data.encode_worker", str(folder)]
    processes: list[subprocess.Popen[str]] = []
    try:
        for n in range(workers):
            processes.append(
                subprocess.Popen(
                    [*command, str(n), str(workers), json.dumps(job)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                    text=True,
                )
            )
        outcomes = [process.communicate() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, complaint) in zip(processes, outcomes, strict=True):
        if process.returncode != 0:
            reason = complaint.strip().splitlines()[-1] if complaint.strip() else f"exit code {process.returncode}"
            raise DataError(f"encoding failed: {reason}")
    return sum(int(printed) for printed, _ in outcomes)
