"""Variation of training examples: augmentation and BPE-dropout, anew in every epoch.

The examples of batch n are a pure function of corpus, settings, seed and n, so any process can compute them. As Python
would be too slow for a GPU in one process, worker processes compute them ahead:
`python -m transduce.data.variation SETTINGS` writes the examples of every OF-th batch to its standard output.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from transduce.data.augment import AugmentConfig, choose
from transduce.data.packing import Example
from transduce.data.plan import BatchPlan, Plan
from transduce.data.shards import TokenShards
from transduce.errors import DataError, TransduceError
from transduce.features import HOOKS
from transduce.files.readers import DEFAULT_READER, READERS, Tokens
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair, load_tokenizer
from transduce.tokenizers.tokenizer import Tokenizer

T = TypeVar("T")
U = TypeVar("U")
_MOST_WORKERS = 12


@dataclass(frozen=True)
class Variation:
    """How examples are varied."""

    tokenizer: AnyTokenizer
    bpe_dropout: float = 0.0
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    reader: str = DEFAULT_READER
    """Name of the reader of the examples."""
    target_language: str | None = None
    """The language of the targets, if it is known and the sources have no language tags."""

    @property
    def enabled(self) -> bool:
        return bool(self.bpe_dropout) or self.augment.enabled

    def growth(self, shards: TokenShards) -> float:
        """The factor by which the examples become longer, measured on a sample, with a margin."""
        if not self.enabled:
            return 1.0
        numbers = np.linspace(0, shards.distinct - 1, num=min(shards.distinct, 2000), dtype=np.int64)
        examples = shards.pairs(numbers)
        varied = self._varied(examples, seed=0)
        lengths = [
            [sum(len(ids) + 1 for ids in stream) for stream in zip(*group, strict=True)] for group in (examples, varied)
        ]
        return 1.03 * max(new / old for old, new in zip(*lengths, strict=True))

    def examples(self, plan: Plan, number: int) -> Sequence[Example]:
        """The examples of batch `number`; one for which the batch has no room when it is longer stays as it is."""
        examples = plan.examples(number)
        if not self.enabled:
            return examples
        room = [plan.batch_tokens - sum(len(ids) + 1 for ids in stream) for stream in zip(*examples, strict=True)]
        result: list[Example] = []
        for old, new in zip(examples, self._varied(examples, seed_of(plan, number)), strict=True):
            left = [r - len(a) + len(b) for r, a, b in zip(room, new, old, strict=True)]
            fits = max(map(len, new)) <= plan.shards.index["max_length"] and min(left) >= 0
            result.append(new if fits else old)
            room = left if fits else room
        return result

    def _varied(self, examples: Sequence[Example], seed: int) -> list[Example]:
        """The examples, varied. Shards hold only ids; decoding them restores the exact text."""
        changes = choose(len(examples), self.augment, seed) if self.augment.enabled else {}
        rows = range(len(examples)) if self.bpe_dropout else list(changes)
        ids = [np.asarray(ids).tolist() for row in rows for ids in examples[row]]
        texts = iter(self._by_side(lambda tokenizer, side: tokenizer.decode_all(side, marked=True), ids))
        pairs = [tuple(next(texts) for _ in examples[row]) for row in rows]
        augment = HOOKS["augment"]
        pairs = [
            augment(pair, changes[row], seed + row, self.target_language) if row in changes else pair
            for row, pair in zip(rows, pairs, strict=True)
        ]
        flat = [text for pair in pairs for text in pair]
        encoded = iter(self._by_side(lambda tokenizer, side: self._encoded(tokenizer, side, seed), flat))
        result = list(examples)
        for row in rows:
            result[row] = self._respell(tuple(next(encoded) for _ in examples[row]))
        return result

    def _encoded(self, tokenizer: AnyTokenizer, texts: list[str], seed: int) -> list[list[int]]:
        if not self.bpe_dropout:
            return tokenizer.encode_all(texts, marked=True)
        assert isinstance(tokenizer, Tokenizer)
        return tokenizer.encode_with_dropout(texts, self.bpe_dropout, seed)

    def _by_side(self, compute: Callable[[AnyTokenizer, list[T]], list[U]], items: list[T]) -> list[U]:
        """The results of a function for items of sources and targets in turn, with the tokenizer of each side."""
        if self.tokenizer.target is self.tokenizer:
            return compute(self.tokenizer, items)
        source = self.tokenizer.source if isinstance(self.tokenizer, TokenizerPair) else self.tokenizer
        sides = [compute(tokenizer, items[n::2]) for n, tokenizer in enumerate((source, self.tokenizer.target))]
        return [result for pair in zip(*sides, strict=True) for result in pair]

    @cached_property
    def _respell(self) -> Callable[[Tokens], Tokens]:
        return READERS[self.reader].respeller(self.tokenizer.pieces(range(self.tokenizer.vocab_size)))


def seed_of(plan: Plan, number: int) -> int:
    return plan.seed + 1_000_003 * number


@contextmanager
def computed_ahead(
    variation: Variation, plan: Plan, start: int, workers: int | None = None
) -> Iterator[Callable[[int], Sequence[Example]]]:
    """Give a function for the examples of the batches `start`, `start` + 1, ..., which worker processes compute.

    By default, there is a worker for every core but two, and none if there are only two cores.
    """
    workers = min((os.cpu_count() or 1) - 2, _MOST_WORKERS) if workers is None else workers
    if not variation.enabled or workers < 1:
        yield lambda number: variation.examples(plan, number)
        return
    settings = {
        "shards": str(plan.shards.folder),
        "plan": {"batch_tokens": plan.batch_tokens, "seed": plan.seed, "growth": plan.growth},
        "bpe_dropout": variation.bpe_dropout,
        "augment": asdict(variation.augment),
        "reader": variation.reader,
        "target_language": variation.target_language,
        "start": start,
        "of": workers,
    }
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-P", "-m", "transduce.data.variation"]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for worker in range(workers):
            argument = json.dumps({**settings, "worker": worker})
            processes.append(subprocess.Popen([*command, argument], stdout=subprocess.PIPE, env=environment))
        yield lambda number: _read(processes[(number - start) % workers], len(plan.shards.streams))
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _read(process: "subprocess.Popen[bytes]", streams: int) -> Sequence[Example]:
    """The next examples that a worker writes."""
    assert process.stdout
    columns = []
    for _ in range(streams):
        lengths, ids = _read_array(process.stdout), _read_array(process.stdout)
        columns.append(np.split(ids, np.cumsum(lengths)[:-1]))
    return list(zip(*columns, strict=True))


def _read_array(file: IO[bytes]) -> Any:
    size = file.read(8)
    if len(size) < 8:
        raise DataError("a process that varies training examples ended; its error message is above")
    return np.frombuffer(file.read(int.from_bytes(size, "little")), dtype=np.uint32)


def _work(settings: dict[str, Any], out: IO[bytes]) -> None:
    """Write the examples of every `of`-th batch, as lengths and ids of each stream, until nobody reads them."""
    shards = TokenShards(Path(settings["shards"]))
    tokenizer = load_tokenizer(shards.folder)
    variation = Variation(
        tokenizer,
        settings["bpe_dropout"],
        AugmentConfig(**settings["augment"]),
        settings["reader"],
        settings["target_language"],
    )
    plan = BatchPlan(shards, **settings["plan"])
    for number in count(settings["start"] + settings["worker"], settings["of"]):
        for stream in zip(*variation.examples(plan, number), strict=True):
            for array in (np.array([len(ids) for ids in stream]), np.concatenate([np.asarray(ids) for ids in stream])):
                data = array.astype(np.uint32).tobytes()
                out.write(len(data).to_bytes(8, "little") + data)
        out.flush()
        shards.release()


if __name__ == "__main__":
    try:
        _work(json.loads(sys.argv[1]), sys.stdout.buffer)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
    except (TransduceError, OSError) as error:
        sys.exit(str(error))
