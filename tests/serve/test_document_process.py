"""The process that reads and writes documents: it is ended at its deadline, and another one takes its place."""

import asyncio
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Coroutine
from typing import Any

import pytest

from transduce.documents import worker
from transduce.serve import document_process
from transduce.serve.document_process import DocumentProcess
from transduce.serve.limits import HttpError

REQUEST = {
    "format": "html", "name": "a.html", "options": {"source": "en", "target": "de"}, "elements": 500_000,
    "characters": 1_000,
}  # fmt: skip
PAGE = b"<p>A man</p><p>A <b>man</b></p><p>A man</p>"
ENDLESS = {**REQUEST, "format": "pdf"}
"""A PDF of many pages, the reading of which takes many seconds."""


def many_pages() -> bytes:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [" + b"3 0 R " * 400_000 + b"] /Count 400000 /MediaBox [0 0 9 9] >>",
        b"<< /Type /Page /Parent 2 0 R >>",
    ]
    body = b"".join(b"%d 0 obj\n%b\nendobj\n" % (number, item) for number, item in enumerate(objects, 1))
    return b"%PDF-1.7\n" + body + b"trailer\n<< /Size 4 /Root 1 0 R >>\nstartxref\n0\n%%EOF\n"


def run_with(work: Coroutine[Any, Any, None], process: DocumentProcess) -> None:
    async def run() -> None:
        await work
        await process.close()

    asyncio.run(run())


def test_the_texts_of_a_document_and_the_document_with_their_translations() -> None:
    process = DocumentProcess(2)

    async def work() -> None:
        texts, _ = await process.run(60, REQUEST, PAGE)
        assert texts["texts"] == [["A man", False, 2], ["A man", True, 1]]
        outputs = [["Ein Mann", []], ["Ein Mann", [[[2, 5], [4, 8]]]]]
        _, written = await process.run(60, {**REQUEST, "outputs": outputs}, PAGE)
        assert written == b"<p>Ein Mann</p><p>Ein <b>Mann</b></p><p>Ein Mann</p>"
        with pytest.raises(HttpError, match="400 characters, more than the 100 allowed") as error:
            await process.run(60, {**REQUEST, "characters": 100}, b"<p>" + b"a" * 400)
        assert error.value.status == 413

    run_with(work(), process)


def test_an_idle_process_that_was_killed_is_replaced() -> None:
    process = DocumentProcess(2)

    async def work() -> None:
        await process.run(60, REQUEST, PAGE)
        assert process._process
        process._process.kill()
        await process._process.wait()
        assert (await process.run(60, REQUEST, PAGE))[0]["texts"]

    run_with(work(), process)


def test_a_process_that_is_late_or_not_needed_any_more_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started, start = list[Process](), document_process._start

    async def recorded() -> Process:
        started.append(await start())
        return started[-1]

    monkeypatch.setattr(document_process, "_start", recorded)
    process, data = DocumentProcess(2), many_pages()

    async def work() -> None:
        with pytest.raises(HttpError, match=r"not finished within 0\.5 s; divide the file") as error:
            await process.run(0.5, ENDLESS, data)
        assert error.value.status == 503
        cancelled = asyncio.create_task(process.run(600, ENDLESS, data))
        waiting = asyncio.create_task(process.run(600, REQUEST, PAGE))
        await asyncio.sleep(0)
        with pytest.raises(HttpError, match="too many files are waiting"):
            await process.run(600, REQUEST, PAGE)
        while len(started) < 2:
            await asyncio.sleep(0.01)
        cancelled.cancel()
        assert (await waiting)[0]["texts"]
        killed = asyncio.create_task(process.run(600, ENDLESS, data))
        await asyncio.sleep(0.1)
        started[-1].kill()
        with pytest.raises(HttpError, match="divide it") as error:
            await killed
        assert error.value.status == 413
        assert (await process.run(60, REQUEST, PAGE))[0]["texts"]
        assert [await ended.wait() for ended in started[:-1]] == [-signal.SIGKILL] * (len(started) - 1)

    run_with(work(), process)


@pytest.mark.parametrize(
    ("seconds", "endless", "code"),
    [
        (600.0, "any(False for _ in iter(int, 1))", 0),
        (0.2, "max(iter(int, 1))", -signal.SIGALRM),  # one call, during which no other thread runs
    ],
)
def test_a_process_ends_with_the_server_or_at_its_deadline(seconds: float, endless: str, code: int) -> None:
    work = f"from transduce.documents import worker; worker._write = lambda *_: {endless}; worker.main()"
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.writelines(worker.message({**REQUEST, "seconds": 60}, PAGE))
        process.stdin.flush()
        process.stdout.read(worker.HEAD.size)
        process.send_signal(signal.SIGTERM)  # a service manager may send it to every process; the server ends this one
        process.stdin.writelines(worker.message({**REQUEST, "seconds": seconds, "outputs": [0, 0]}, PAGE))
        process.stdin.flush()
        if not code:
            time.sleep(0.1)  # so that the end is met during the work
            process.stdin.close()
        assert process.wait(60) == code
