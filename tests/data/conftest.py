"""Fixtures of preparing a corpus: a cache of its own for each test, and encoding without worker processes."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from transduce.data import write_corpus
from transduce.data.prepare import DataConfig


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def encode_here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Encode in this process, as the given number of workers would, with shards of this many pairs."""

    def use(workers: int = 1, shard_pairs: int = 1000) -> None:
        def encode(folder: Path, data: DataConfig, reader: str, examples: int, labels: Sequence[str]) -> list[int]:
            job = write_corpus.encode_job(data, reader, labels)
            job = json.loads(json.dumps(job))  # a worker gets its job as text
            for n in range(workers):
                write_corpus.encode_shards(folder, n, workers, job)
            return write_corpus.kept_pairs(folder)

        monkeypatch.setattr(write_corpus, "SHARD_PAIRS", shard_pairs)
        monkeypatch.setattr(write_corpus, "encode_corpus", encode)

    use()
    return use
