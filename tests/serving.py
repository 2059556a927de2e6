"""Servers for tests: one in a thread of this process, or the program itself."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from transduce.serve.app import make_app
from transduce.serve.catalogue import Catalogue
from transduce.serve.gate import Gate
from transduce.serve.keys import Keys
from transduce.serve.limits import Limits
from transduce.serve.server import hosts_of, listen, serve_on
from transduce.translator import Translator

PATIENCE = 120
"""Seconds after which a server counts as hanging."""


@contextmanager
def in_thread(
    translators: Sequence[tuple[str, Translator]], keys: Sequence[str] = (), **limits: Any
) -> Iterator[tuple[str, Gate]]:
    """The address of a server, and its gate."""
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        hosts = hosts_of(listening, "127.0.0.1")
        gate = make_app(Catalogue(translators), Limits(**limits), Keys(list(keys)), hosts)
        thread = threading.Thread(target=serve_on, args=(listening, gate, lambda: None))
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}", gate
        finally:
            gate.traffic.draining = True
            thread.join(PATIENCE)
            assert not thread.is_alive()


class ServerProcess:
    """`transduce serve` on a port of its own; what it says on stderr is kept."""

    def __init__(self, *words: str | Path, log: Path, environment: dict[str, str], **options: Any) -> None:
        self._log = log
        command = [sys.executable, "-m", "transduce", "serve", "--port", "0", *map(str, words)]
        with log.open("w") as stderr:
            self.process = subprocess.Popen(command, stderr=stderr, env=environment, **options)
        self.address = self._wait()

    def _wait(self) -> str:
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            if found := re.search(r"serving .* on (http://\S+)\n", self.said):
                return found[1]
            assert self.process.poll() is None, self.said
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError("the server did not start")

    @property
    def said(self) -> str:
        """On stderr, up to now."""
        return self._log.read_text(encoding="utf-8")

    @property
    def memory(self) -> int:
        """Bytes resident."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def count(self, name: str, **labels: str) -> float:
        """A counter's value."""
        return counted(httpx.get(f"{self.address}/metrics").text, name, **labels)

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)


def counted(metrics: str, name: str, **labels: str) -> float:
    """The sum of a counter over all labels but those given."""
    found = [line for line in metrics.splitlines() if re.match(rf"{name}[ {{]", line)]
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(float(line.split()[-1]) for line in found if all(label in line for label in wanted))
