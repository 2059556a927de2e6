"""Shared by the tests: a toy language, a tiny tokenizer and model, and the command line as processes.

Run as a script, this file is the server behind `CommandLine`.
"""

import gc
import json
import os
import random
import runpy
import select
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

if not Path("/dev/nvidiactl").exists():  # without a GPU, Triton's kernels are interpreted
    os.environ["TRITON_INTERPRET"] = "1"

PATIENCE = 120
"""Seconds after which a command is considered to hang."""


def serve() -> None:
    """Import torch once; then fork for each request, and run `python -m transduce` in the child."""
    import torch._dynamo  # noqa: F401  # an optimizer would import it

    import transduce.evaluation.scores
    import transduce.training.api  # noqa: F401

    gc.collect()
    gc.freeze()  # otherwise the first collection of a child would copy all memory that it shares with this process

    def answer(number: int) -> None:
        os.write(1, f"{number}\n".encode())

    answer(0)
    while line := sys.stdin.readline():
        request = json.loads(line)
        children = [start_child(request, rank) for rank in range(request["processes"])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        answer(next((code for code in codes if code), 0))


def start_child(request: dict[str, Any], rank: int) -> int:
    """Fork; the child becomes one of the requested processes."""
    if child := os.fork():
        return child
    os.chdir(request["cwd"])
    for fd, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY | os.O_APPEND), (2, os.O_WRONLY | os.O_APPEND)):
        os.dup2(os.open(request["files"][fd], mode), fd)
    sys.stdin, sys.stdout, sys.stderr = map(os.fdopen, range(3), "rww")
    sys.argv = ["transduce", *request["words"]]
    if request["processes"] > 1:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(request["processes"])}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(request["port"])}
    exec(request["before"], {"rank": rank})
    os._exit(become_transduce())


def become_transduce() -> int:
    """Run the program in this process; returns its exit code. An orderly shutdown of torch would take a second."""
    code = 1
    try:
        runpy.run_module("transduce", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


with suppress(ModuleNotFoundError):  # a machine for `make gpu` need not have it
    from hypothesis import settings

    settings.register_profile("transduce", deadline=None, derandomize=True, max_examples=60)
    settings.load_profile("transduce")

Pairs = list[tuple[str, str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With TEST_SHARD=2/4, run every fourth test, from the second on (benchmarks/gpu_suite.py)."""
    number, _, count = os.environ.get("TEST_SHARD", "1/1").partition("/")
    items[:] = items[int(number) - 1 :: int(count)]


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep prepared corpora in a folder of this test run instead of the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CACHE", str(folder))
        yield folder


def make_toy_pairs(count: int, seed: int) -> Pairs:
    """Pairs of a language of nine words, whose translation is the same words in reverse order."""
    chance = random.Random(seed)
    words = [first + second for first in ("ba", "de", "gi") for second in ("bo", "du", "go")]
    pairs = []
    for _ in range(count):
        chosen = chance.choices(words, k=chance.randint(1, 5))
        pairs.append((" ".join(chosen), " ".join(reversed(chosen))))
    return pairs


@pytest.fixture(scope="session")
def toy_pairs() -> Pairs:
    """300 pairs of the toy language."""
    return make_toy_pairs(300, seed=1)


@pytest.fixture(scope="session")
def toy_tokenizer(toy_pairs: Pairs) -> Any:
    """A tokenizer of the toy language."""
    from transduce.text.tokenizer import Tokenizer, TokenizerConfig

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

    torch.set_num_threads(1)  # for a model of this size, more threads are slower
    torch.manual_seed(1)
    config = EncoderDecoderConfig(encoder_layers=1, decoder_layers=2, d_model=32, d_ff=64, num_heads=2)
    return EncoderDecoder(config, toy_tokenizer.vocab_size).eval()


@dataclass(frozen=True)
class Finished:
    """The result of a command."""

    code: int
    out: str
    err: str


def free_port() -> int:
    """A port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class CommandLine:
    """Runs `python -m transduce WORDS`, each time in a process of its own.

    Importing torch takes seconds, so the processes are forked from a server that has already imported it; `fresh`
    starts a new interpreter instead. The server itself computes nothing, so a child starts in the state of a new one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._files = [folder / name for name in ("stdin", "stdout", "stderr")]
        self._server: subprocess.Popen[bytes] | None = None

    def __call__(self, *words: str | Path, cwd: Path, **options: Any) -> Finished:
        """Run a command and wait for it; options as for `begin`."""
        self.begin(*words, cwd=cwd, **options)
        return self.end()

    def begin(
        self, *words: str | Path, cwd: Path, stdin: str | bytes = "", before: str = "", processes: int = 1
    ) -> None:
        """Start a command as this many processes; each first runs the Python code `before`, which can read `rank`."""
        for file, content in zip(
            self._files, (stdin.encode() if isinstance(stdin, str) else stdin, b"", b""), strict=True
        ):
            file.write_bytes(content)
        server = self._start()
        request = {
            "cwd": str(cwd),
            "files": list(map(str, self._files)),
            "words": list(map(str, words)),
            "before": before,
            "processes": processes,
            "port": free_port() if processes > 1 else 0,
        }
        assert server.stdin
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()

    def end(self) -> Finished:
        """Wait for the command that was started."""
        code = self._answer(self._start())
        return Finished(code, *(file.read_bytes().decode("utf-8", "replace") for file in self._files[1:]))

    def fresh(self, *words: str | Path, cwd: Path, **options: Any) -> "subprocess.Popen[str]":
        """Start a command in a new interpreter."""
        command = [sys.executable, "-m", "transduce", *map(str, words)]
        return subprocess.Popen(command, cwd=cwd, env=self.environment, text=True, encoding="utf-8", **options)

    def close(self) -> None:
        """End the server."""
        if self._server and self._server.stdin:
            self._server.stdin.close()
            self._server.wait(PATIENCE)

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._server is None:
            command = [sys.executable, __file__]
            pipe = subprocess.PIPE
            self._server = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=self.environment, bufsize=0)
            assert self._answer(self._server) == 0
        return self._server

    def _answer(self, server: "subprocess.Popen[bytes]") -> int:
        stdout: IO[bytes] | None = server.stdout
        assert stdout
        if not select.select([stdout], [], [], PATIENCE)[0]:
            server.kill()
            self._server = None
            pytest.fail(f"a command took more than {PATIENCE} s")
        return int(stdout.readline())


@pytest.fixture(scope="session")
def transduce(tmp_path_factory: pytest.TempPathFactory, private_cache: Path) -> Iterator[CommandLine]:
    """The command line; `transduce("info", "-m", run, cwd=folder)`."""
    command_line = CommandLine(tmp_path_factory.mktemp("command_line"))
    yield command_line
    command_line.close()


# Small enough that training takes two seconds, large enough to have every part of the model.
TINY = {
    "tokenizer.vocab_size": 450,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.num_heads": 2,
    "train.steps": 60,
    "train.save_every": 20,
    "train.log_every": 1,
    "train.batch_tokens": 512,
    "train.warmup": 20,
    "train.learning_rate_scale": 0.6,
    "train.valid_sentences": 4,
}


def as_sets(values: dict[str, Any]) -> list[str]:
    """Settings as arguments of the command line."""
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


@dataclass(frozen=True)
class TrainedRun:
    """A finished run of the toy language. Tests must not change it: copy it first."""

    folder: Path
    """The folder in which the command ran: it holds train.src, train.tgt, valid.src, valid.tgt and the run."""
    outcome: Finished
    words: Sequence[str]
    """The arguments of the command that trained it, without --out."""

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.folder / "run"


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    """Write lines to a file."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


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


if __name__ == "__main__":
    serve()
