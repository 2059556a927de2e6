"""Fixtures of all tests: the command line, a toy language, a tiny tokenizer and model, a trained run."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from toy_run import TINY, Pairs, TrainedRun, as_sets, make_toy_pairs, write_lines

if not Path("/dev/nvidiactl").exists():  # without a GPU, Triton's kernels are interpreted
    os.environ["TRITON_INTERPRET"] = "1"

with suppress(ModuleNotFoundError):  # a machine for `make gpu` need not have it
    from hypothesis import settings

    settings.register_profile("transduce", deadline=None, derandomize=True, max_examples=60)
    settings.load_profile("transduce")


IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ


def pytest_configure() -> None:
    """Keep prepared corpora and the compiled engine in a folder of this test run, instead of the user's cache.

    The processes of pytest-xdist share it, so that nothing is prepared or compiled twice.
    """
    if not IS_WORKER:
        os.environ["TRANSDUCE_CACHE"] = tempfile.mkdtemp(prefix="transduce-tests-")
        atexit.register(shutil.rmtree, os.environ["TRANSDUCE_CACHE"], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are processors: tests wait for servers, browsers and other programs."""
    return len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do not look for garbage among what the tests import, neither now nor later: it takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With TEST_SHARD=2/4, run every fourth test, from the second on (benchmarks/gpu_suite.py)."""
    number, _, count = os.environ.get("TEST_SHARD", "1/1").partition("/")
    items[:] = items[int(number) - 1 :: int(count)]


@pytest.fixture(scope="session")
def private_cache() -> Path:
    """The cache of this test run."""
    return Path(os.environ["TRANSDUCE_CACHE"])


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """Do not wait for the disk: only a machine that loses power needs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Let torch use one thread, also after a test that changed it: for small models, more are several times slower."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def toy_pairs() -> Pairs:
    """300 pairs of the toy language."""
    return make_toy_pairs(300, seed=1)


@pytest.fixture(scope="session")
def toy_tokenizer(toy_pairs: Pairs) -> Any:
    """A tokenizer of the toy language."""
    from transduce.tokenizers.tokenizer import Tokenizer, TokenizerConfig

    return Tokenizer.train((text for pair in toy_pairs for text in pair), TokenizerConfig(vocab_size=450))


@pytest.fixture(scope="session")
def make_shards(toy_tokenizer: Any) -> Callable[..., Any]:
    """A function that writes pairs of text as token shards with `shard_pairs` pairs each."""

    def make(folder: Path, pairs: Pairs, shard_pairs: int = 100, tokenizer: Any = toy_tokenizer) -> Any:
        from transduce.data.shards import TokenShards, write_index, write_shard

        folder.mkdir(parents=True)
        for number, start in enumerate(range(0, len(pairs), shard_pairs)):
            sides = [tokenizer.encode_all(side) for side in zip(*pairs[start : start + shard_pairs], strict=True)]
            write_shard(folder, number, sides, tokenizer.vocab_size)
        write_index(folder, {"vocab_size": tokenizer.vocab_size, "max_length": 256, "report": []})
        return TokenShards(folder)

    return make


@pytest.fixture(scope="session")
def untrained_model(toy_tokenizer: Any) -> Any:
    """A tiny model with random weights, for tests that do not depend on its outputs."""
    import torch

    from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig

    torch.manual_seed(1)
    config = EncoderDecoderConfig(encoder_layers=1, decoder_layers=2, d_model=32, d_ff=64, num_heads=2)
    return EncoderDecoder(config, toy_tokenizer.vocab_size).eval()


@pytest.fixture(scope="session")
def transduce(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line; `transduce("info", "-m", run, cwd=folder)`."""
    from transduce.fast.native.library import load_library

    load_library()  # otherwise, the first command that uses it would compile it, and print a line about that
    command_line = CommandLine(tmp_path_factory.mktemp("command_line"))
    yield command_line
    command_line.close()


@pytest.fixture(scope="session")
def trained(transduce: CommandLine, toy_pairs: Pairs, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A model of the toy language, trained through the command line from two files."""
    folder = tmp_path_factory.mktemp("trained")
    for name, pairs in (("train", toy_pairs), ("valid", make_toy_pairs(20, seed=2))):
        for side, lines in zip(("src", "tgt"), zip(*pairs, strict=True), strict=True):
            write_lines(folder / f"{name}.{side}", lines)
    files = [word for name in ("src", "tgt") for word in (f"--{name}", str(folder / f"train.{name}"))]
    files += [word for name in ("src", "tgt") for word in (f"--valid-{name}", str(folder / f"valid.{name}"))]
    words = ["train", *files, "--preset", "tiny", *as_sets(TINY)]
    outcome = transduce(*words, "--out", "run", cwd=folder)
    assert outcome.code == 0, outcome.err
    return TrainedRun(folder, outcome, words)
