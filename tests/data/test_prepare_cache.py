"""The cache of prepared corpora: when one is used again, and what happens to damaged and unfinished ones."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from preparation import TOKENIZER, corpus, forbid_encoding, run, texts, write_tsv

from transduce.data import prepare, shards, write_corpus
from transduce.data.prepare import DataConfig
from transduce.errors import DataError
from transduce.files.pairs import Pair
from transduce.tokenizers.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("cache")


def test_a_corpus_prepared_before_is_reported_with_the_present_names(tmp_path: Path, encode_here: object) -> None:
    lines = "a b\tc d\n\te f\ng h\ti j\n" * 4
    old, new = tmp_path / "old.tsv", tmp_path / "new.tsv"
    old.write_text(lines)
    logged: list[str] = []
    prepare.prepare(DataConfig(train=((str(old),),)), TOKENIZER, logged.append)
    assert any(f"(first: {old}, line 2)" in line for line in logged)
    old.rename(new)
    logged.clear()
    prepare.prepare(DataConfig(train=((str(new),),)), TOKENIZER, logged.append)
    assert "prepared before" in logged[0]
    assert any(f"(first: {new}, line 2)" in line for line in logged)
    assert not any("old.tsv" in line for line in logged)


def test_a_second_call_finds_the_corpus_prepared(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path, toy_pairs)
    first, _ = run(data)
    forbid_encoding(monkeypatch)
    second, logged = run(data)
    assert texts(second) == texts(first)
    assert second.tokenizer.model == first.tokenizer.model
    assert any("prepared before" in line for line in logged)


def test_a_file_with_a_new_date_or_name_is_not_prepared_again(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path, toy_pairs)
    run(data)
    os.utime(data.train[0][0], (1, 1))
    forbid_encoding(monkeypatch)
    run(data)
    for name in ("copy.tsv", "copy.2019.en-de.tsv"):
        shutil.copy(data.train[0][0], tmp_path / name)
        run(replace(data, train=((str(tmp_path / name),),)))


def test_a_corpus_with_names_of_columns_is_prepared_again_but_a_run_keeps_its_own(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path, [("source", "target"), *toy_pairs])
    with monkeypatch.context() as older:  # a version that took the names for a pair
        older.setattr("transduce.files.pair_formats.is_header", lambda *_: False)
        begun, _ = run(data)
    assert ("source", "target") in texts(begun)
    assert ("source", "target") not in texts(run(data)[0])
    forbid_encoding(monkeypatch)
    resumed = prepare.prepare(data, TOKENIZER, print, begun_with=begun.train.folder.name)
    assert resumed.train.folder == begun.train.folder


def test_validation_text_is_not_part_of_the_key(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path, toy_pairs)
    run(data)
    forbid_encoding(monkeypatch)
    prepared, _ = run(replace(data, valid=data.train))
    assert prepared.valid == toy_pairs


@pytest.mark.parametrize(
    "change", ["content", "order of files", "max_length", "reverse", "vocab_size", "type", "sample_pairs"]
)
def test_changed_content_or_settings_are_prepared_again(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, cache: Path, change: str
) -> None:
    more = str(write_tsv(tmp_path / "more.tsv", toy_pairs[:10]))
    data = corpus(tmp_path, toy_pairs[:40])
    data = replace(data, train=(*data.train, (more,)))
    run(data)
    tokenizer = TOKENIZER
    if change == "content":
        write_tsv(tmp_path / "more.tsv", toy_pairs[:11])
    elif change == "order of files":
        data = replace(data, train=data.train[::-1])
    elif change in ("max_length", "reverse"):
        data = replace(data, **{change: {"max_length": 100, "reverse": True}[change]})  # type: ignore[arg-type]
    else:
        value = {"vocab_size": 430, "type": "unigram", "sample_pairs": 30}[change]
        tokenizer = replace(TOKENIZER, **{change: value})  # type: ignore[arg-type]
    run(data, tokenizer)
    assert len(list(cache.iterdir())) == 2


def test_two_files_and_one_file_with_the_same_bytes_are_different_corpora(
    tmp_path: Path, encode_here: object, cache: Path
) -> None:
    for name in ("a.tsv", "b.tsv", "a.txt", "b.txt"):
        write_tsv(tmp_path / name, [("same", "line")])
    joined, _ = run(DataConfig(train=((str(tmp_path / "a.txt"), str(tmp_path / "b.txt")),)))
    apart, _ = run(DataConfig(train=((str(tmp_path / "a.tsv"),), (str(tmp_path / "b.tsv"),))))
    assert (len(joined.train), len(apart.train)) == (1, 2)


@pytest.mark.parametrize("name", ["0.src.npy", "0.tgt.npy", "0.src_offsets.npy", "lengths.npy", "index.json"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_file_of_the_cache_is_named_with_the_remedy(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, name: str, damage: str
) -> None:
    data = corpus(tmp_path, toy_pairs)
    folder = run(data)[0].train.folder
    if damage == "missing":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes((folder / name).read_bytes()[:-7])
    with pytest.raises(DataError) as caught:
        run(data)
    assert str(folder / name) in str(caught.value)
    assert f"delete {folder} to prepare it anew" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_of_killed_processes_are_no_obstacle(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, cache: Path
) -> None:
    fresh, old = (cache / f"{'0' * 32}.{name}.tmp" for name in ("fresh", "old"))
    for leftover in (fresh, old):
        leftover.mkdir(parents=True)
        (leftover / "0.src.npy").write_bytes(b"half")
    os.utime(old, (1, 1))
    prepared, _ = run(corpus(tmp_path, toy_pairs))
    assert len(prepared.train) == len(toy_pairs)
    assert fresh.exists()  # another process may be writing to it
    assert not old.exists()


def test_preparing_goes_on_where_it_was_interrupted(
    tmp_path: Path,
    toy_pairs: list[Pair],
    encode_here: Callable[..., None],
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode_here(workers=2, shard_pairs=20)
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "whole"))
    whole, _ = run(corpus(tmp_path, toy_pairs))
    monkeypatch.setenv("TRANSDUCE_CACHE", str(cache))
    numbers: list[int] = []

    def interrupted(folder: Path, number: int, *arguments: Any) -> None:
        numbers.append(number)
        if len(numbers) == 3:
            (folder / f"{number}.src.npy").write_bytes(b"half a shard")
            raise KeyboardInterrupt
        shards.write_shard(folder, number, *arguments)

    monkeypatch.setattr(write_corpus, "write_shard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(corpus(tmp_path, toy_pairs))
    assert list(cache.glob("*.tmp"))
    monkeypatch.setattr(Tokenizer, "train", None)  # it was learned before
    rest, logged = run(corpus(tmp_path, toy_pairs))
    assert sum("which was interrupted" in line for line in logged) == 1
    assert numbers[:3] == [0, 2, 4]
    assert sorted(numbers[3:]) == [number for number in range(len(toy_pairs) // 20) if number not in (0, 2)]
    files = [{path.name: path.read_bytes() for path in prepared.train.folder.iterdir()} for prepared in (whole, rest)]
    assert files[0] == files[1]
    assert [path.name for path in cache.iterdir()] == [rest.train.folder.name]


def test_a_process_that_is_killed_before_the_folder_gets_its_name_is_no_obstacle(
    tmp_path: Path, toy_pairs: list[Pair], encode_here: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path, toy_pairs)

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "flush_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            run(data)
    resumed, logged = run(data)
    assert any("which was interrupted" in line for line in logged)
    again, _ = run(data)
    assert texts(again) == texts(resumed)


def test_a_second_process_waits_for_the_first(tmp_path: Path, toy_pairs: list[Pair], encode_here: object) -> None:
    data, started, results = corpus(tmp_path, toy_pairs), threading.Event(), []

    def log(line: str) -> None:
        if "encoding" in line and not started.is_set():
            started.set()
            deadline = time.monotonic() + 20
            while not any("waiting" in line for line in waiting) and time.monotonic() < deadline:
                time.sleep(0.01)

    waiting: list[str] = []
    first = threading.Thread(target=lambda: results.append(prepare.prepare(data, TOKENIZER, log)))
    first.start()
    assert started.wait(20)
    second = prepare.prepare(data, TOKENIZER, waiting.append)
    first.join()
    assert any("waiting" in line for line in waiting)
    assert not any("encoding" in line for line in waiting)
    assert second.train.folder == results[0].train.folder


def test_a_refused_text_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(DataError, match="no usable sentence pair"):
        run(corpus(tmp_path, [("", "")]))
    assert not list(cache.iterdir())


def test_the_languages_do_not_change_what_is_prepared(tmp_path: Path, toy_pairs: list[Pair]) -> None:
    folders = {run(corpus(tmp_path, toy_pairs[:20], tgt_lang=code))[0].train.folder for code in (None, "ja")}
    assert len(folders) == 1
