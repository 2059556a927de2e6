"""Shared by the tests: a toy language, a tiny tokenizer and model, and the command line as processes."""

import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from fork_server import RUNNING

if not Path("/dev/nvidiactl").exists():  # without a GPU, Triton's kernels are interpreted
    os.environ["TRITON_INTERPRET"] = "1"

PATIENCE = 600
"""Seconds after which a command is considered to hang."""


with suppress(ModuleNotFoundError):  # a machine for `make gpu` need not have it
    from hypothesis import settings

    settings.register_profile("transduce", deadline=None, derandomize=True, max_examples=60)
    settings.load_profile("transduce")

Pairs = list[tuple[str, str]]


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


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep prepared corpora and the compiled engine in a folder of this test run, instead of the user's cache.

    The processes of pytest-xdist share it, so that nothing is prepared or compiled twice.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CACHE", str(folder))
        yield folder


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


class BackgroundProcess:
    """A process that the fork server started; a part of the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, poll: Callable[[int], int], stdout: IO[str] | None, stderr: IO[str] | None) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._poll = poll

    def poll(self) -> int | None:
        """The exit code, or None if the process is running."""
        if self.returncode is None:
            code = self._poll(self.pid)
            self.returncode = None if code == RUNNING else code
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the end of the process; returns the exit code."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, f"process {self.pid} took more than {timeout} s"
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> "BackgroundProcess":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.close()
        self.wait()


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
        self._streams, self._their_streams = socket.socketpair()

    def __call__(self, *words: str | Path, cwd: Path, **options: Any) -> Finished:
        """Run a command and wait for it; options as for `begin`."""
        self.begin(*words, cwd=cwd, **options)
        return self.end()

    def begin(
        self,
        *words: str | Path,
        cwd: Path,
        stdin: str | bytes = "",
        before: str = "",
        processes: int = 1,
        program: str | Path = "transduce",
        preload: Sequence[str] = (),
    ) -> None:
        """Start a command as this many processes; each first runs the Python code `before`, which can read `rank`.

        `program` is a module or a Python file that runs instead of transduce. The server imports the modules `preload`,
        for this command and later ones.
        """
        for file, content in zip(
            self._files, (stdin.encode() if isinstance(stdin, str) else stdin, b"", b""), strict=True
        ):
            file.write_bytes(content)
        request = {
            "cwd": str(cwd),
            "files": list(map(str, self._files)),
            "words": list(map(str, [program, *words])),
            "before": before,
            "processes": processes,
            "port": free_port() if processes > 1 else 0,
            "preload": list(preload),
        }
        self._send(request)

    def end(self) -> Finished:
        """Wait for the command that was started."""
        code = self._answer(self._start())
        return Finished(code, *(file.read_bytes().decode("utf-8", "replace") for file in self._files[1:]))

    def background(
        self,
        *words: str | Path,
        cwd: Path | None = None,
        stdin: int | None = None,
        stdout: int | IO[str] | None = None,
        stderr: int | IO[str] | None = None,
        before: str = "",
    ) -> BackgroundProcess:
        """Start a command that runs beside the test; streams as for `subprocess.Popen`, but None is /dev/null."""
        null = os.open(os.devnull, os.O_RDWR)
        pipes, theirs = [], [null if stdin is None else stdin]
        for stream in (stdout, stderr):
            if stream == subprocess.PIPE:
                ours, write = os.pipe()
                pipes.append(os.fdopen(ours, encoding="utf-8"))
                theirs.append(write)
            else:
                pipes.append(None)
                theirs.append(null if stream is None else stream if isinstance(stream, int) else stream.fileno())
        words = tuple(map(str, ["transduce", *words]))
        self._send({"cwd": str(cwd or Path.cwd()), "words": words, "before": before, "processes": 1})
        socket.send_fds(self._streams, [b"."], theirs)
        pid = self._answer(self._start())
        for fd in {null, *(fd for fd, pipe in zip(theirs[1:], pipes, strict=True) if pipe)}:
            os.close(fd)
        return BackgroundProcess(pid, self._poll, *pipes)

    def fresh(self, *words: str | Path, cwd: Path, **options: Any) -> "subprocess.Popen[str]":
        """Start a command in a new interpreter."""
        command = [sys.executable, "-m", "transduce", *map(str, words)]
        return subprocess.Popen(command, cwd=cwd, env=self.environment, text=True, encoding="utf-8", **options)

    def close(self) -> None:
        """End the server."""
        self._streams.close()
        self._their_streams.close()
        if self._server and self._server.stdin:
            self._server.stdin.close()
            self._server.wait(PATIENCE)

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._server is None:
            streams = self._their_streams.fileno()
            command = [sys.executable, str(Path(__file__).with_name("fork_server.py")), str(streams)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
            self._server = subprocess.Popen(command, env=self.environment, pass_fds=[streams], **pipes)
            assert self._answer(self._server) == 0
        return self._server

    def _send(self, request: dict[str, Any]) -> None:
        stdin: IO[bytes] | None = self._start().stdin
        assert stdin
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.flush()

    def _poll(self, pid: int) -> int:
        self._send({"poll": pid})
        return self._answer(self._start())

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
