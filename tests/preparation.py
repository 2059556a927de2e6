"""Shared by the tests of preparing a corpus: small corpora, and where they are encoded."""

import os
from pathlib import Path

import numpy as np
import pytest

from transduce.data import prepare, write_corpus
from transduce.data.prepare import DataConfig, Prepared
from transduce.files.pairs import Pair
from transduce.tokenizers.tokenizer import TokenizerConfig

TOKENIZER = TokenizerConfig(vocab_size=450)


def encode_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start worker processes, as for a corpus of several shards."""
    monkeypatch.setattr(write_corpus, "SHARD_PAIRS", 5)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def forbid_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise AssertionError("encoded again")

    monkeypatch.setattr(write_corpus, "encode_corpus", fail)


def write_tsv(path: Path, pairs: list[Pair]) -> Path:
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return path


def corpus(folder: Path, pairs: list[Pair], **settings: object) -> DataConfig:
    return DataConfig(train=((str(write_tsv(folder / "pairs.tsv", pairs)),),), **settings)  # type: ignore[arg-type]


def run(data: DataConfig, tokenizer: TokenizerConfig = TOKENIZER) -> tuple[Prepared, list[str]]:
    logged: list[str] = []
    return prepare.prepare(data, tokenizer, logged.append), logged


def texts(prepared: Prepared) -> list[Pair]:
    """The decoded text of the shards."""
    decode = prepared.tokenizer.decode
    pairs = prepared.train.pairs(np.arange(len(prepared.train)))
    return [(decode(src.tolist()), decode(tgt.tolist())) for src, tgt in pairs]
