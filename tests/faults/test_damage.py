"""Files that are not what they were: found, named, and never used."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trouble import SmallRun, times, train_undisturbed

from transduce.data import prepare as prepare_module
from transduce.data.prepare import DataConfig, prepare
from transduce.data.shards import TokenShards
from transduce.errors import DataError, RunError
from transduce.runs.checkpoint import list_checkpoints, newest_intact
from transduce.text.tokenizer import Tokenizer, TokenizerConfig
from transduce.training.api import train

Harm = Callable[[Path, random.Random], None]


def flip_a_byte(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= chance.randrange(1, 256)
    path.write_bytes(content)


def cut_short(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


@pytest.fixture(scope="module")
def small(transduce: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return train_undisturbed(transduce, tmp_path_factory.mktemp("small"), **{"train.steps": 8})


@pytest.mark.parametrize(("harm", "tries"), [(flip_a_byte, times(60, 1000)), (cut_short, times(30, 200))])
def test_any_damage_to_a_checkpoint_is_found_and_the_one_before_it_used(
    small: SmallRun, tmp_path: Path, harm: Harm, tries: int
) -> None:
    chance = random.Random(7)
    checkpoints = shutil.copytree(small.whole / "checkpoints", tmp_path / "checkpoints", symlinks=True)
    before, newest = list_checkpoints(checkpoints)
    files = sorted(newest.iterdir())
    assert len(files) == 6
    for number in range(tries):
        file = files[number % len(files)]
        content = file.read_bytes()
        harm(file, chance)
        said: list[str] = []
        assert newest_intact(checkpoints, said.append) == before, (file.name, number)
        assert newest.name in said[0]
        assert "put aside" in said[0]
        (checkpoints / f"{newest.name}.damaged").rename(newest)
        file.write_bytes(content)
    assert newest_intact(checkpoints, pytest.fail) == newest


def test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(
    transduce: Any, small: SmallRun, tmp_path: Path
) -> None:
    run = shutil.copytree(small.whole, tmp_path / "run", symlinks=True)
    shutil.rmtree(run / "model")
    flip_a_byte(run / "checkpoints/step-8/optimizer.safetensors", random.Random(1))
    outcome = transduce(*small.words, "--out", run, cwd=small.folder)
    assert outcome.code == 0, outcome.err
    assert "step-8: optimizer.safetensors is damaged; put aside as step-8.damaged" in outcome.err
    assert f"resuming from {run}/checkpoints/step-4" in outcome.err
    for name in ("checkpoints/step-8/model.safetensors", "model/model.safetensors"):
        assert (run / name).read_bytes() == (small.whole / name).read_bytes()


@pytest.mark.parametrize(("harm", "tries"), [(flip_a_byte, times(3, 40)), (cut_short, times(2, 20)), (remove, 1)])
def test_any_damage_to_prepared_text_is_named_with_its_path(
    toy_pairs: Any, make_shards: Callable[..., TokenShards], tmp_path: Path, harm: Harm, tries: int
) -> None:
    chance = random.Random(7)
    folder = make_shards(tmp_path / "shards", toy_pairs).folder
    files = sorted(folder.iterdir())
    assert {"0.src.npy", "2.tgt_offsets.npy", "index.json", "lengths.npy", "order.npy"} <= {path.name for path in files}
    for file in files:
        content = file.read_bytes()
        for _ in range(tries):
            harm(file, chance)
            with pytest.raises(DataError) as caught:
                TokenShards(folder)
            # A manifest that was changed may blame the file whose checksum it gives.
            assert str(file if file.name != "manifest.json" else folder) in str(caught.value)
            assert f"delete {folder} to prepare it anew" in str(caught.value)
            file.write_bytes(content)
    assert len(TokenShards(folder)) == len(toy_pairs)


def test_a_damaged_shard_of_a_run_is_one_line(transduce: Any, small: SmallRun, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    own_cache = f"import os; os.environ['TRANSDUCE_CACHE'] = {str(cache)!r}"
    command = (*small.words, "--out", tmp_path / "run")
    assert transduce(*command, cwd=small.folder, before=own_cache).code == 0
    (shard,) = cache.glob("*/0.tgt.npy")
    flip_a_byte(shard, random.Random(1))
    outcome = transduce(*command, cwd=small.folder, before=own_cache)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1] == (f"transduce: {shard} is damaged; delete {shard.parent} to prepare it anew")


def test_text_that_changed_under_a_run_is_named(small: SmallRun, tmp_path: Path) -> None:
    names = {name: shutil.copy(small.folder / f"train.{name}", tmp_path / name) for name in ("src", "tgt")}
    settings = {"train.steps": 2, "tokenizer.vocab_size": 350}
    train(tmp_path / "run", **names, preset="tiny", settings=settings)
    with Path(names["tgt"]).open("a") as file:
        file.write("\n")
    with Path(names["src"]).open("a") as file:
        file.write("ba\n")
    with pytest.raises(RunError, match=f"{names['src']}, {names['tgt']}"):
        train(tmp_path / "run", **names, preset="tiny", settings=settings | {"train.steps": 3})


def test_text_that_changes_while_it_is_read_is_named(
    small: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    source, target = (shutil.copy(small.folder / f"train.{side}", tmp_path / side) for side in ("src", "tgt"))
    learn = Tokenizer.train

    def meanwhile(sentences: Any, config: TokenizerConfig) -> Tokenizer:
        found = learn(sentences, config)
        Path(source).write_text(Path(source).read_text().replace("ba", "be"))
        return found

    monkeypatch.setattr(prepare_module.Tokenizer, "train", meanwhile)
    with pytest.raises(DataError, match=f"{source} changed while it was being read"):
        prepare(DataConfig(train=((str(source), str(target)),)), TokenizerConfig(vocab_size=350), lambda _: None)
    assert list((tmp_path / "cache").iterdir()) == []
