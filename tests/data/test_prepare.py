"""Preparing a corpus: with a complete report, by any number of processes, and without changing the text."""

import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from preparation import TOKENIZER, corpus, encode_in_processes, forbid_encoding, run, texts, write_tsv

from transduce.data import prepare, write_corpus
from transduce.data.prepare import DataConfig
from transduce.data.shards import TokenShards
from transduce.errors import ConfigError, DataError
from transduce.files.files import read_lines
from transduce.files.pairs import Corpus, Pair, ReadReport
from transduce.files.readers import Reader

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize("place", ["here", "in a worker process"])
def test_a_full_disk_is_one_error_and_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    path = write_tsv(tmp_path / "pairs.tsv", [("a b", "c d")] * 9)
    if place == "here":

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(write_corpus, "write_shard", fail)
    else:
        encode_in_processes(monkeypatch)
        worker = tmp_path / "worker"
        worker.write_text("#!/bin/sh\necho 'No space left on device' >&2\nexit 3\n")
        worker.chmod(0o755)
        monkeypatch.setattr(write_corpus.sys, "executable", str(worker))
    with pytest.raises(DataError) as caught:
        prepare.prepare(DataConfig(train=((str(path),),)), TOKENIZER, lambda _: None)
    assert str(caught.value) == (
        f"{cache}, where prepared text is kept, cannot be written: No space left on device; free space there or set "
        "TRANSDUCE_CACHE to another folder, then run the same command again"
    )
    assert list(cache.iterdir()) == []


def test_shards_decode_to_the_text_exactly(tmp_path: Path, toy_pairs: list[Pair]) -> None:
    pairs = [*toy_pairs, (" two  spaces ", "\u2581 \ue011 😀 汉字"), ("é e\u0301", "x\u2028y")]
    prepared, logged = run(corpus(tmp_path, pairs))
    assert texts(prepared) == pairs
    assert any(f"{len(pairs):,} pairs" in line for line in logged)


def test_reverse_swaps_the_sides_of_shards_and_of_validation(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object
) -> None:
    valid = write_tsv(tmp_path / "valid.tsv", [("s", "t")])
    prepared, _ = run(corpus(tmp_path, toy_pairs[:20], reverse=True, valid=((str(valid),),)))
    assert texts(prepared) == [(tgt, src) for src, tgt in toy_pairs[:20]]
    assert prepared.valid == [("t", "s")]


def test_lengths_and_means_are_those_of_the_ids(tmp_path: Path, toy_pairs: list[Pair], encode_here: object) -> None:
    shards = run(corpus(tmp_path, toy_pairs))[0].train
    lengths = np.array([[len(src), len(tgt)] for src, tgt in shards.pairs(np.arange(len(shards)))])
    ranks = np.arange(len(shards))
    assert shards.sorted_lengths(ranks).tolist() == lengths[shards.sorted_pairs(ranks)].tolist()
    assert shards.sorted_lengths(ranks).tolist() == sorted(lengths.tolist(), key=lambda pair: pair[::-1])
    assert shards.mean_lengths == pytest.approx(tuple(lengths.mean(axis=0)))
    assert shards.index["longest"] == lengths.max()


def test_files_of_one_side_each_may_have_any_name(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.en", "b.de", "a.2019.txt", "b"):
        side = "ab".index(name[0])
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in toy_pairs), encoding="utf-8")
    run(DataConfig(train=((str(tmp_path / "a.en"), str(tmp_path / "b.de")),)))
    forbid_encoding(monkeypatch)
    run(DataConfig(train=((str(tmp_path / "a.2019.txt"), str(tmp_path / "b")),)))


def test_overlong_pairs_are_counted_reported_and_left_out(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object
) -> None:
    long = "ba be bi " * 30
    pairs = [*toy_pairs[:5], (long, "ba"), *toy_pairs[5:9], ("ba", long), (long, long)]
    data = corpus(tmp_path, pairs, max_length=40)
    for _ in range(2):  # the second time from the cache
        prepared, logged = run(data)
        assert texts(prepared) == toy_pairs[:9]
        assert "data: left out 3 pairs above 40 tokens (data.max_length)" in logged
    assert prepared.train.index["longest"] <= 40


def test_a_corpus_of_only_overlong_pairs_is_an_error(tmp_path: Path, encode_here: object, cache: Path) -> None:
    with pytest.raises(DataError, match=r"every pair has more than 2 tokens; raise data\.max_length"):
        run(corpus(tmp_path, [("ba be bi bo bu" * 9, "x")] * 3, max_length=2))
    assert list(cache.iterdir()) == []


def test_a_shard_of_only_overlong_pairs_is_empty(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: Callable[..., None]
) -> None:
    encode_here(shard_pairs=5)
    long = ("ba be bi " * 30, "ba")
    prepared, _ = run(corpus(tmp_path, [*toy_pairs[:5], *[long] * 5, *toy_pairs[5:10]], max_length=40))
    assert prepared.train.index["shard_pairs"] == [5, 0, 5]
    assert texts(prepared) == toy_pairs[:10]


def test_lines_left_out_are_reported_every_time(tmp_path: Path, toy_pairs: list[Pair], encode_here: object) -> None:
    data = corpus(tmp_path, toy_pairs)
    with open(data.train[0][0], "ab") as file:
        file.write(b"no tab\n\xff\tx\n")
    for _ in range(2):
        _, logged = run(data)
        assert f"data: left out 1 pair without a tab (first: {data.train[0][0]}, line 301)" in logged
        assert f"data: left out 1 pair not UTF-8 (first: {data.train[0][0]}, line 302)" in logged


def test_bad_lines_of_validation_text_are_reported(tmp_path: Path, toy_pairs: list[Pair], encode_here: object) -> None:
    valid = tmp_path / "valid.tsv"
    valid.write_bytes(b"a\tA\nno tab\n")
    prepared, logged = run(corpus(tmp_path, toy_pairs, valid=((str(valid),),)))
    assert prepared.valid == [("a", "A")]
    assert f"validation data: left out 1 pair without a tab (first: {valid}, line 2)" in logged


def folder_content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_several_workers_write_what_one_writes(
    tmp_path: Path,
    toy_pairs: list[Pair],
    encode_here: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    data = corpus(tmp_path, toy_pairs, max_length=3)
    contents = []
    for count in (1, workers):
        monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / f"by {count}"))
        encode_here(workers=count, shard_pairs=70)
        prepared, logged = run(data)
        contents.append((folder_content(prepared.train.folder), [line for line in logged if "left out" in line]))
    assert contents[0] == contents[1]
    assert contents[0][1] != []
    assert json.loads(contents[0][0]["index.json"])["shard_pairs"][1:-1] != []


def test_worker_processes_write_what_this_process_writes(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path, toy_pairs, max_length=3)
    here, _ = run(data)
    monkeypatch.undo()
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "by processes"))
    encode_in_processes(monkeypatch)
    there, _ = run(data)
    assert folder_content(there.train.folder) == folder_content(here.train.folder)


def test_a_worker_that_fails_is_an_error_that_leaves_nothing_behind(
    tmp_path: Path, toy_pairs: list[Pair], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_in_processes(monkeypatch)
    data = corpus(tmp_path, toy_pairs)
    sample = write_corpus._sample

    def then_lose_the_file(*arguments: object) -> list[Pair]:
        result = sample(*arguments)  # type: ignore[arg-type]
        Path(data.train[0][0]).unlink()
        return result

    monkeypatch.setattr(write_corpus, "_sample", then_lose_the_file)
    with pytest.raises(DataError, match=r"encoding failed: .*pairs\.tsv: no such file"):
        run(data)
    assert list(cache.iterdir()) == []


def test_no_code_of_the_current_folder_is_run(
    tmp_path: Path, toy_pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sentencepiece.py").write_text("raise RuntimeError('code of the current folder was run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    encode_in_processes(monkeypatch)
    assert len(run(corpus(tmp_path, toy_pairs))[0].train) == len(toy_pairs)


@pytest.mark.parametrize("name", ["nothing.tsv", ""])
def test_a_missing_training_file_or_a_folder_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"{(tmp_path / name).name}"):
        run(DataConfig(train=((str(tmp_path / name),),)))


def test_a_corpus_without_files_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no training text"):
        run(DataConfig())


def test_a_large_vocabulary_gets_wider_ids(tmp_path: Path) -> None:
    from transduce.data.shards import write_index, write_shard

    write_shard(tmp_path, 0, [[[69_999, 5]], [[65_536]]], vocab_size=70_000)
    write_index(tmp_path, {})
    ((src, tgt),) = TokenShards(tmp_path).pairs(np.array([0]))
    assert (src.tolist(), tgt.tolist()) == ([69_999, 5], [65_536])


def test_a_reader_of_one_stream_is_prepared_like_one_of_pairs(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(corpus: Corpus, report: ReadReport, *, reverse: bool = False) -> Iterator[tuple[str, ...]]:
        for line in (line for (name,) in corpus for line in read_lines(Path(name))):
            report.pairs += 1
            yield (line,)

    encode_here(workers=2, shard_pairs=100)
    monkeypatch.setattr("transduce.files.readers.LINES", Reader(("text",), read))
    lines = [source for source, _ in toy_pairs]
    (tmp_path / "text.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines), encoding="utf-8")
    data = DataConfig(train=((str(tmp_path / "text.tsv"),),), valid=((str(tmp_path / "text.tsv"),),))
    as_pairs, _ = run(data)
    prepared = prepare.prepare(data, TOKENIZER, lambda _: None, reader="lines")
    assert prepared.train.folder != as_pairs.train.folder
    assert prepared.train.streams == ("text",)
    decoded = [prepared.tokenizer.decode(ids.tolist()) for (ids,) in prepared.train.pairs(np.arange(len(lines)))]
    assert decoded == [f"{line}\t{line}" for line in lines]
    assert prepared.valid == [(text,) for text in decoded]


def test_every_validation_file_has_its_number_of_examples(tmp_path: Path, toy_pairs: list[Pair]) -> None:
    files = [write_tsv(tmp_path / f"valid{n}.tsv", toy_pairs[:n]) for n in (2, 5)]
    prepared, _ = run(corpus(tmp_path, toy_pairs[:20], valid=tuple((str(path),) for path in files)))
    assert prepared.valid == [*toy_pairs[:2], *toy_pairs[:5]]
    assert prepared.valid_sizes == [2, 5]
