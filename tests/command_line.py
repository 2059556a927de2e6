"""Runs the command line in processes that are forked from one that has imported torch."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from fork_server import RUNNING

PATIENCE = 600
"""Seconds after which a command is considered to hang."""


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
