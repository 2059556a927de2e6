"""Ten times as many requests as the server can answer."""

import asyncio
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fault_injection import FULL, repetitions
from serving import ServerProcess, host_and_port, raw_status, request_head

SECONDS = 60.0 if FULL else 0.5
CAPACITY = repetitions(16, 64)
"""Number of clients that the server accepts without rejecting any: the size of its queue."""
BODY = json.dumps({"q": "\n".join(["babo dego gibo dedu gigo"] * 40), "source": "en", "target": "de"}).encode()
REQUEST = request_head("/translate", len(BODY)).replace(b"Connection: close\r\n", b"") + BODY


def test_overload_by_a_factor_of_ten_is_translated_or_rejected(transduce: Any, trained: Any, tmp_path: Path) -> None:
    """First as many clients as fit the queue, each without pause; then ten times their request rate."""
    arguments = ["-m", f"toy={trained.run}", "--limit", f"queue={CAPACITY}"]
    with ServerProcess(*arguments, log=tmp_path / "log", start=transduce.background) as server:
        asyncio.run(load(server.address, CAPACITY, min(SECONDS, 1), every=0))  # the engine starts
        normal, usual = asyncio.run(load(server.address, CAPACITY, SECONDS, every=0))
        rate = len(usual) / SECONDS
        before = server.memory
        statuses, latencies = asyncio.run(load(server.address, 10 * CAPACITY, SECONDS, every=CAPACITY / rate))
        after = server.memory
    rate_overloaded = statuses.total() / SECONDS
    print(
        f"\nfull: {rate:.0f} requests/s, p99 {p99(usual):.3f} s; overloaded: {rate_overloaded:.0f} requests/s, "
        f"{len(latencies) / SECONDS:.0f} answered, p99 {p99(latencies):.3f} s; "
        f"memory {before / 1e6:.0f} MB, then {after / 1e6:.0f} MB"
    )
    assert normal.keys() == {200}
    assert statuses.keys() == {200, 429}
    assert after < before + 30_000_000
    if FULL:
        assert p99(latencies) <= 2 * p99(usual)


async def load(address: str, clients: int, seconds: float, every: float) -> tuple["Counter[int]", list[float]]:
    """Each client sends a request every `every` seconds; returns status counts and the latencies of the accepted."""
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    start = time.monotonic()

    async def client(index: int) -> None:
        next_start = start + every * index / clients
        reader, writer = await asyncio.open_connection(*host_and_port(address))
        while next_start < start + seconds:
            await asyncio.sleep(next_start - time.monotonic())
            sent = time.monotonic()
            writer.write(REQUEST)
            header = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            statuses[raw_status(header)] += 1
            if raw_status(header) == 200:
                latencies.append(time.monotonic() - sent)
            else:
                assert b"retry-after: 1" in header.lower()
            next_start = max(next_start + every, time.monotonic())
        writer.close()

    await asyncio.gather(*(client(index) for index in range(clients)))
    return statuses, latencies


def p99(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98]
