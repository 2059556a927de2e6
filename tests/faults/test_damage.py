"""Damaged files are detected, named in the error, and not used."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import in_cache
from fault_injection import SmallRun, repetitions, train_reference_run

from transduce.data import write_corpus
from transduce.data.prepare import DataConfig, prepare
from transduce.data.shards import TokenShards
from transduce.errors import DataError, RunError
from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig
from transduce.training.api import train
from transduce.training.checkpoint import list_checkpoints, newest_intact

Damage = Callable[[Path, random.Random], None]


def flip_a_byte(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    path.write_bytes(content)


def cut_short(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


@pytest.fixture(scope="module")
def small(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return train_reference_run(transduce, tmp_path_factory.mktemp("small"), **{"train.steps": 8})


@pytest.mark.parametrize(("damage", "tries"), [(flip_a_byte, repetitions(60, 1000)), (cut_short, repetitions(30, 200))])
def test_any_damage_to_a_checkpoint_is_detected_and_the_previous_one_is_used(
    small: SmallRun, tmp_path: Path, damage: Damage, tries: int
) -> None:
    rng = random.Random(7)
    checkpoints = shutil.copytree(small.reference / "checkpoints", tmp_path / "checkpoints", symlinks=True)
    before, newest = list_checkpoints(checkpoints)
    files = sorted(newest.iterdir())
    assert len(files) == 6
    for number in range(tries):
        file = files[number % len(files)]
        content = file.read_bytes()
        damage(file, rng)
        logged: list[str] = []
        assert newest_intact(checkpoints, logged.append) == before, (file.name, number)
        assert newest.name in logged[0]
        assert "renamed to" in logged[0]
        (checkpoints / f"{newest.name}.damaged").rename(newest)
        file.write_bytes(content)
    assert newest_intact(checkpoints, pytest.fail) == newest


def test_a_run_whose_newest_checkpoint_is_damaged_resumes_from_the_previous_one(
    transduce: Any, small: SmallRun, tmp_path: Path
) -> None:
    run = shutil.copytree(small.reference, tmp_path / "run", symlinks=True)
    shutil.rmtree(run / "model")
    flip_a_byte(run / "checkpoints/step-8/optimizer.safetensors", random.Random(1))
    outcome = transduce(*small.arguments, "--out", run, cwd=small.folder)
    assert outcome.code == 0, outcome.err
    assert "step-8: optimizer.safetensors is damaged; renamed to step-8.damaged" in outcome.err
    assert f"resuming from {run}/checkpoints/step-4" in outcome.err
    for name in ("checkpoints/step-8/model.safetensors", "model/model.safetensors"):
        assert (run / name).read_bytes() == (small.reference / name).read_bytes()


@pytest.mark.parametrize(
    ("damage", "tries"), [(flip_a_byte, repetitions(3, 40)), (cut_short, repetitions(2, 20)), (remove, 1)]
)
def test_any_damage_to_prepared_text_is_reported_with_its_path(
    toy_pairs: Any, make_shards: Callable[..., TokenShards], tmp_path: Path, damage: Damage, tries: int
) -> None:
    rng = random.Random(7)
    folder = make_shards(tmp_path / "shards", toy_pairs).folder
    files = sorted(folder.iterdir())
    assert {"0.src.npy", "2.tgt_offsets.npy", "index.json", "lengths.npy", "order.npy"} <= {path.name for path in files}
    for file in files:
        content = file.read_bytes()
        for _ in range(tries):
            damage(file, rng)
            with pytest.raises(DataError) as caught:
                TokenShards(folder)
            # If the manifest is changed, the error may name the file whose checksum it holds.
            assert str(file if file.name != "manifest.json" else folder) in str(caught.value)
            assert f"delete {folder} to prepare it anew" in str(caught.value)
            file.write_bytes(content)
    assert len(TokenShards(folder)) == len(toy_pairs)


def test_a_damaged_shard_of_a_run_is_reported_in_one_line(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    own_cache = in_cache(cache)
    command = (*small.arguments, "--out", tmp_path / "run")
    assert transduce(*command, cwd=small.folder, before=own_cache).code == 0
    (shard,) = cache.glob("*/0.tgt.npy")
    flip_a_byte(shard, random.Random(1))
    outcome = transduce(*command, cwd=small.folder, before=own_cache)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1] == (f"transduce: {shard} is damaged; delete {shard.parent} to prepare it anew")


def test_training_text_that_changed_between_resumes_is_named(small: SmallRun, tmp_path: Path) -> None:
    names = {name: shutil.copy(small.folder / f"train.{name}", tmp_path / name) for name in ("src", "tgt")}
    settings = {"train.steps": 2, "tokenizer.vocab_size": 450}
    train(tmp_path / "run", **names, preset="tiny", settings=settings)
    with Path(names["tgt"]).open("a") as file:
        file.write("\n")
    with Path(names["src"]).open("a") as file:
        file.write("ba\n")
    with pytest.raises(RunError, match=f"{names['src']}, {names['tgt']}"):
        train(tmp_path / "run", **names, preset="tiny", settings=settings | {"train.steps": 3})


def test_training_text_that_changes_while_it_is_read_is_named(
    small: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    source, target = (shutil.copy(small.folder / f"train.{side}", tmp_path / side) for side in ("src", "tgt"))
    real_train = Tokenizer.train

    def train_and_change_the_text(sentences: Any, config: TokenizerConfig) -> Tokenizer:
        tokenizer = real_train(sentences, config)
        Path(source).write_text(Path(source).read_text().replace("ba", "be"))
        return tokenizer

    monkeypatch.setattr(write_corpus.Tokenizer, "train", train_and_change_the_text)
    with pytest.raises(DataError, match=f"{source} changed while it was being read"):
        prepare(DataConfig(train=((str(source), str(target)),)), TokenizerConfig(vocab_size=450), lambda _: None)
    assert list((tmp_path / "cache").iterdir()) == []
