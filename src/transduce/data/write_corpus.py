"""Write a corpus into a folder: learn its vocabulary, encode its text with several processes, and write the index.

The processes run this module: `python -m transduce.data.write_corpus FOLDER N OF JOB`. Every worker reads the entire
corpus and encodes every OF-th shard of it, so that no text passes between processes. Shards that are already complete
are not written again, so that preparing resumes after an interruption. The exit code is CANNOT_WRITE if the disk is
full, for example.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from transduce.data.data_config import CorpusPart, DataConfig, part_repetitions
from transduce.data.shards import kept_file, write_index, write_shard
from transduce.disk import write_atomically
from transduce.errors import DataError, TransduceError
from transduce.files.pairs import ReadReport, Reservoir, count_pairs
from transduce.files.readers import READERS, Reader
from transduce.tokenizers.any_tokenizer import (
    AnyTokenizer,
    TokenizerPair,
    encode_prompt_and_answer,
    load_tokenizer,
    tokenizer_file,
    tokenizer_of_stream,
)
from transduce.tokenizers.symbols import escape, mark
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig

CANNOT_WRITE = 3
SHARD_PAIRS, _SHARD_ARRAYS = 50_000, 2_000
_LISTED_CLASSES = 10
T = TypeVar("T")


@dataclass
class _Seen:
    """What the first pass over examples finds."""

    labels: Counter[str] = field(default_factory=Counter)
    """The names of all classes, with the number of examples of each."""
    shape: tuple[int, ...] = ()
    """The shape of the last array; those of images are all the same."""
    without_letters: Counter[str] = field(default_factory=Counter)
    """Of sentence pairs, the number of sources and targets without letters."""


def write_pairs(
    work: Path, data: DataConfig, vocabulary: TokenizerConfig | AnyTokenizer, log: Callable[[str], None], reader: str
) -> None:
    report, examples = ReadReport(), READERS[reader]
    seen = _Seen()
    sample_size = vocabulary.sample_pairs if isinstance(vocabulary, TokenizerConfig) else 0
    sample = _sample(data, sample_size, report, reader, seen)
    labels = sorted(seen.labels)

    def learn(config: TokenizerConfig) -> AnyTokenizer:
        if not examples.texts(examples.streams):  # a model folder has a vocabulary; this one writes the labels
            return Tokenizer.train_on_documents(labels, TokenizerConfig(type="char"), set("".join(labels)))
        kind = "two vocabularies" if config.separate else "a vocabulary"
        size = count_pairs(len(sample), report.noun)
        log(f"data: learning {kind} of {config.vocab_size:,} tokens from {size}")
        if config.separate:
            sources, targets = zip(*map(examples.texts, sample), strict=True)
            return TokenizerPair(*(Tokenizer.train(texts, config) for texts in (sources, targets)))
        return Tokenizer.train((text for example in sample for text in examples.texts(example)), config)

    tokenizer = write_tokenizer(work, vocabulary, learn)
    log(f"data: encoding {count_pairs(report.pairs, report.noun)}")
    kept = encode_corpus(work, data, reader, -(-report.pairs // shard_pairs(examples)), labels)
    too_long = report.pairs - sum(kept)
    lines = report.lines()
    if too_long:
        lines.append(f"left out {count_pairs(too_long, report.noun)} above {data.max_length} tokens (data.max_length)")
    if too_long == report.pairs:
        raise DataError(f"every {report.noun} has more than {data.max_length} tokens; raise data.max_length")
    lines += [
        f"{count:,} of {report.pairs:,} {side}s have no letters; check the columns: a line of a .tsv file has the "
        "source before the target, and nothing before it"
        for side, count in seen.without_letters.items()
        if 2 * count > report.pairs
    ]
    facts: dict[str, Any] = {"vocab_size": tokenizer.target.vocab_size, "report": lines, "files": data.all_train}
    facts |= {"source_vocab_size": tokenizer.vocab_size} if isinstance(tokenizer, TokenizerPair) else {}
    facts |= {} if examples.arrays else {"max_length": data.max_length}
    facts |= {"shape": list(seen.shape)} if examples.arrays else {}
    if examples.labels:
        facts["labels"] = labels
        lines += _describe_classes(seen.labels, report.noun)
    if report.noun != ReadReport.noun:
        facts["noun"] = report.noun
    repeats = part_repetitions(data.parts, kept, data.temperature, data.replay_share)
    if data.directions or len(kept) > 1:
        lines += _describe_parts(data, kept, repeats)
    write_index(work, facts, READERS[reader].streams, list(zip(kept, repeats, strict=True)))


def write_tokenizer(
    work: Path, vocabulary: TokenizerConfig | AnyTokenizer, learn: Callable[[TokenizerConfig], AnyTokenizer]
) -> AnyTokenizer:
    """Write the vocabulary, which is learned unless it is given or was learned before preparing was interrupted."""
    if tokenizer_file(work).exists():
        return load_tokenizer(work)
    tokenizer = learn(vocabulary) if isinstance(vocabulary, TokenizerConfig) else vocabulary
    write_atomically(work / tokenizer.file_name, tokenizer.model)
    return tokenizer


def _sample(data: DataConfig, size: int, report: ReadReport, reader: str, seen: _Seen) -> list[tuple[Any, ...]]:
    """Read all examples, which fills the report; returns a random sample of them, with the shares of training.

    The sample does not have the arrays of examples.
    """
    has_arrays, has_labels = READERS[reader].arrays, READERS[reader].labels
    samples, counts = [], []
    for part in data.parts:
        sample, of_part = Reservoir[tuple[Any, ...]](size), ReadReport()
        for _, example in part.read_train(READERS[reader], of_part):
            sample.offer((None, *example[1:]) if has_arrays else example)
            if has_labels:
                seen.labels[example[-1]] += 1
            if has_arrays:
                seen.shape = example[0].shape
            if READERS[reader].has_translations:
                sides = zip(("source", "target"), example, strict=True)
                seen.without_letters.update(side for side, text in sides if not any(map(str.isalpha, text)))
        report.add(of_part)
        samples.append(sample.kept)
        counts.append(of_part.pairs)
    if len(samples) == 1:
        return samples[0]
    repeats = part_repetitions(data.parts, counts, data.temperature, data.replay_share)
    weights = [count * times for count, times in zip(counts, repeats, strict=True)]
    quotas = [
        min(len(kept), round(size * weight / sum(weights))) for kept, weight in zip(samples, weights, strict=True)
    ]
    chance = random.Random(0)
    return [example for kept, quota in zip(samples, quotas, strict=True) for example in chance.sample(kept, quota)]


def _describe_classes(examples: Counter[str], noun: str) -> list[str]:
    """The classes, the largest first, with their numbers of examples, and doubts about the columns of a file."""
    named = [f"{label} ({count:,})" for label, count in examples.most_common(_LISTED_CLASSES)]
    named += [f"and {len(examples) - len(named):,} more"] if len(examples) > len(named) else []
    lines = [f"{len(examples):,} classes: {', '.join(named)}"]
    if 2 * len(examples) > examples.total():
        lines.append(
            f"most classes have a single {noun}; check that the columns of texts and labels are not exchanged: a line "
            "of a .tsv file has the text before the label"
        )
    elif noun == "text" and examples[first := next(iter(examples))] == 1:
        lines.append(
            f"the class {first} has only the first text; if that line names the columns, name them text and label, or "
            "remove it"
        )
    return lines


def _describe_parts(data: DataConfig, kept: list[int], repeats: list[float]) -> list[str]:
    has_replay = any(part.is_replay for part in data.parts)
    reason = " and ".join(["data.temperature"] * (data.temperature != 1) + ["data.replay_share"] * has_replay)
    return [
        f"{_name(part)}: {count_pairs(count)}" + (f", each {times:.2f} times in an epoch ({reason})" * (times != 1))
        for part, count, times in zip(data.parts, kept, repeats, strict=True)
    ]


def _name(part: CorpusPart) -> str:
    return " ".join(filter(None, [part.name, "old text" if part.is_replay else "" if part.name else "new text"]))


def encode_corpus(folder: Path, data: DataConfig, reader: str, shards: int, labels: Sequence[str] = ()) -> list[int]:
    """Write the shards with one process for each core; returns the number of examples of each part that fit.

    A single shard is written by this process, as starting another one would take longer. Raises OSError if the shards
    cannot be written.
    """
    job = encode_job(data, reader, labels)
    if shards == 1:
        encode_shards(folder, 0, 1, job)
    else:
        _encode_in_processes(folder, job, shards)
    return kept_pairs(folder)


def kept_pairs(folder: Path) -> list[int]:
    """The number of examples of each part of the corpus in all shards."""
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob(kept_file(folder, "*").name)]
    return [sum(counts) for counts in zip(*kept, strict=True)]


def _encode_in_processes(folder: Path, job: dict[str, Any], shards: int) -> None:
    workers = min(os.cpu_count() or 1, shards)
    package_root = str(Path(__file__).parents[2])
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # With -P and no empty path, nothing is imported from the current folder.
    command = [sys.executable, "-P", "-m", "transduce.data.write_corpus", str(folder)]
    processes: list[subprocess.Popen[str]] = []
    try:
        for n in range(workers):
            processes.append(
                subprocess.Popen(
                    [*command, str(n), str(workers), json.dumps(job)],
                    stderr=subprocess.PIPE,
                    close_fds=False,  # they share the lock on the folder
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                    text=True,
                )
            )
        outcomes = [process.communicate() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(processes, outcomes, strict=True):
        if process.returncode != 0:
            reason = errors.strip().splitlines()[-1] if errors.strip() else f"exit code {process.returncode}"
            if process.returncode == CANNOT_WRITE:
                raise OSError(reason)
            raise DataError(f"encoding failed: {reason}")


def encode_job(data: DataConfig, reader: str, labels: Sequence[str] = ()) -> dict[str, Any]:
    """What a worker has to know about the corpus, in JSON's types."""
    parts = [asdict(part) for part in data.parts]
    return {"parts": parts, "max_length": data.max_length, "reader": reader, "labels": list(labels)}


def shard_pairs(reader: Reader) -> int:
    return _SHARD_ARRAYS if reader.arrays else SHARD_PAIRS


def encode_shards(folder: Path, worker: int, workers: int, job: dict[str, Any]) -> None:
    """Write this worker's shards."""
    reader = READERS[job["reader"]]
    if reader.encode:
        reader.encode(folder, worker, workers, [files for part in job["parts"] for files in part["train"]])
        return
    tokenizer = load_tokenizer(folder)
    parts = [CorpusPart(**table) for table in job["parts"]]
    examples = _examples(parts, reader)
    class_of = {label: [number] for number, label in enumerate(job["labels"])}
    shards = iter(lambda: list(islice(examples, shard_pairs(reader))), [])
    for number, shard in missing_shards(folder, shards, worker, workers):
        marked = (_mark(example, parts[part], reader, is_back) for part, is_back, example in shard)
        columns = list(zip(*marked, strict=True))
        streams: list[Any] = (
            [[encode_prompt_and_answer(tokenizer, *texts) for _, _, texts in shard]]
            if reader.has_prompts
            else [
                tokenizer_of_stream(tokenizer, name).encode_all(column, marked=True)
                for name, column in zip(reader.texts(reader.streams), reader.texts(columns), strict=True)
            ]
        )
        if reader.arrays:
            streams.insert(0, [array.reshape(-1) for array in columns[0]])
        if reader.labels:
            streams.append([class_of[label] for label in columns[-1]])
        fitting, kept = [], [0] * len(parts)
        for (part, _, _), ids in zip(shard, zip(*streams, strict=True), strict=True):
            if max(map(len, reader.texts(ids)), default=0) <= job["max_length"]:
                fitting.append(ids)
                kept[part] += 1
        sides = [[ids[stream] for ids in fitting] for stream in range(len(reader.streams))]
        vocab_size = max(tokenizer.vocab_size, tokenizer.target.vocab_size)
        write_shard(folder, number, sides, vocab_size, reader.streams, kept)


def missing_shards(folder: Path, shards: Iterable[T], worker: int, workers: int) -> Iterator[tuple[int, T]]:
    """The shards of one of the workers that are not yet complete, with their numbers."""
    for number, shard in enumerate(shards):
        if number % workers == worker and not kept_file(folder, number).exists():
            yield number, shard


def _examples(parts: list[CorpusPart], reader: Reader) -> Iterator[tuple[int, bool, tuple[Any, ...]]]:
    """Every example of the corpus, with the number of its part and whether its source is a back-translation."""
    for number, part in enumerate(parts):
        for is_back_translation, example in part.read_train(reader, ReadReport()):
            yield number, is_back_translation, example


def _mark(example: tuple[Any, ...], part: CorpusPart, reader: Reader, is_back_translation: bool) -> tuple[Any, ...]:
    """The example with marked texts; the source of a pair begins with its tags."""
    if reader.arrays or reader.labels:
        texts = map(escape, reader.texts(example))
        return (*example[: int(reader.arrays)], *texts, *example[len(example) - int(reader.labels) :])
    first, *others = example
    marked = mark(first, part.tagged_target, back_translated=is_back_translation, context=part.context)
    return (marked, *map(escape, others))


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(CANNOT_WRITE)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    try:
        encode_shards(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
    except TransduceError as error:
        sys.exit(str(error))
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        sys.exit(CANNOT_WRITE)
