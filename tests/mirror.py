"""A local HTTP server with small archives of the structure of WMT14's, which can be made to fail."""

import gzip
import hashlib
import io
import re
import tarfile
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from toy_run import make_toy_pairs

PACKAGED = Path(__file__).parents[1] / "src/transduce/corpora/wmt14-en-de.toml"


@dataclass(frozen=True)
class Fault:
    """A fault of one response."""

    status: int = 0
    """Respond with this status code and no file."""
    cut: int | None = None
    """Close the connection after this many bytes."""
    content: bytes | None = None
    """Send this content instead of the file."""
    no_ranges: bool = False
    """Send the entire file even if a range was requested."""


@dataclass
class Mirror:
    """The server, a context manager."""

    files: dict[str, bytes]
    faults: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    """The faults of the next responses, by path; later responses have none."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """The path and range of every request."""

    def __enter__(self) -> "Mirror":
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror._respond(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuse connections from now on. The thread has to end before its socket is closed: it would never wait."""
        self._server.shutdown()
        self._server.server_close()

    def _respond(self, request: BaseHTTPRequestHandler) -> None:
        range_header = request.headers.get("Range")
        self.requests.append((request.path, range_header))
        fault = self.faults[request.path].pop(0) if self.faults[request.path] else Fault()
        content = self.files.get(request.path) if fault.content is None else fault.content
        if fault.status or content is None:
            request.send_error(fault.status or 404)
            return
        start = 0
        if range_header and not fault.no_ranges:
            start = int(range_header.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                request.send_error(416)
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            request.send_response(200)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        request.wfile.write(content[start:][: fault.cut])


def tgz(members: dict[str, bytes], **attributes: Any) -> bytes:
    """A compressed tar archive; `attributes` are set on every member."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in attributes.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def plain(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def sgml(lines: list[str]) -> bytes:
    """Lines in the SGML of WMT's test sets."""
    rows = [f'<seg id="{number}">{line.replace("&", "&amp;")}</seg>' for number, line in enumerate(lines, start=1)]
    return "\n".join(['<srcset setid="newstest2014">', '<doc docid="1">', "<p>", *rows, "</p>", "</doc>"]).encode()


TEST_PAIRS = [("bobo & bobo", "bobo & bobo"), ("gigi test", "test gigi")]
VALID_PAIRS = [("dede valid", "valid dede"), ("a house .", "ein Haus .")]
# One for each reason to leave a pair out.
BAD_PAIRS = [
    ("", "leer"),
    ("long " * 251, "lang " * 251),
    ("one", "eins zwei drei vier"),
    ("bobo & bobo", "etwas anderes"),
    ("something else", "ein Haus ."),
    ("twice here", "hier zweimal"),
    ("twice  here", "hier\tzweimal "),
]


def wmt14_files() -> dict[str, bytes]:
    """Small versions of the archives in the catalogue, by path."""
    train = list(dict.fromkeys(make_toy_pairs(300, seed=5)))
    sides = {
        name: [list(side) for side in zip(*pairs, strict=True)]
        for name, pairs in {
            "training/europarl-v7.de-en": train[:100],
            "commoncrawl.de-en": train[100:] + BAD_PAIRS,
            "training/news-commentary-v9.de-en": train[:20],
            "dev/newstest2013": VALID_PAIRS,
            "dev/newstest2014": TEST_PAIRS,
        }.items()
    }
    members = {
        f"{name}.{language}": plain(lines)
        for name, both in sides.items()
        for language, lines in zip(("en", "de"), both, strict=True)
    }
    english, german = sides["dev/newstest2014"]
    members["dev/newstest2014-deen-ref.en.sgm"] = sgml(english)
    members["dev/newstest2014-deen-src.de.sgm"] = sgml(german)

    def pack(prefix: str, **others: bytes) -> bytes:
        return tgz(others | {name: content for name, content in members.items() if name.startswith(prefix)})

    return {
        "/wmt13/training-parallel-europarl-v7.tgz": pack("training/europarl", unused=b"another language\n"),
        "/wmt13/training-parallel-commoncrawl.tgz": pack("commoncrawl"),
        "/wmt14/training-parallel-nc-v9.tgz": pack("training/news"),
        "/wmt19/translation-task/dev.tgz": pack("dev"),
    }


def catalogue_of(files: dict[str, bytes]) -> str:
    """The packaged catalogue, with the sizes and sha256 of these archives."""
    head, *archives = PACKAGED.read_text(encoding="utf-8").split("[[archives]]")
    changed = [re.sub("disk = .*", "disk = 1_000_000", head)]
    for text, content in zip(archives, files.values(), strict=True):
        sized = re.sub("size = .*", f"size = {len(content)}", text)
        changed.append(re.sub("sha256 = .*", f'sha256 = "{hashlib.sha256(content).hexdigest()}"', sized))
    return "[[archives]]".join(changed)
