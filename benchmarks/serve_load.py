"""How long a client waits while others send the most expensive requests that the server accepts, to every route.

    python benchmarks/serve_load.py [--model runs/demo] [--clients 8] [--seconds 10] [--out figures.json]
    python benchmarks/serve_load.py --attack

Beside each kind of request, which several clients repeat without a pause, a light client translates a short sentence
ten times a second, and another one looks at /health. The program fails if the light client waits 0.5 s or more (median)
or 2 s or more (once), if /health is not ok, or if any response has a 5xx status other than 503 with Retry-After.

With `--attack`, connections are misused instead: 2,000 at once that send nothing, clients that write one byte at a
time, that read nothing, and 20,000 wrong API keys; the memory of the server before and after is printed. In both cases,
SIGTERM must end the server in 35 s. The server is a process of its own; its model is the bundled one, unless `--model`
names another, and its language model has the size of the paper's base model and random weights. Beside requests to it,
the light client sends it a prompt. The load average, which is printed, tells what else the machine did.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from serve import server
from setting import SEED, make_parser, print_setting, write_results

from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.folder import find_model, save_model
from transduce.tokenizers.tokenizer import EOS, Tokenizer

MEDIAN, WORST = 0.5, 2.0
"""What a light client may have to wait, in seconds."""
BOUNDARY = "boundary-of-the-form"
WORDS = "The two old women who live near the harbour sell fresh fish to the tourists every morning of the summer. "


@dataclass(frozen=True)
class Request:
    path: str
    body: bytes
    kind: str = "application/json"
    headers: str = ""

    def raw(self, *, close: bool = True) -> bytes:
        method = "POST" if self.body else "GET"
        head = f"{method} {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(self.body)}\r\n{self.headers}"
        head += f"Content-Type: {self.kind}\r\n" + "Connection: close\r\n" * close
        return head.encode() + b"\r\n" + self.body


def of_json(path: str, **fields: object) -> Request:
    return Request(path, json.dumps(fields).encode())


def of_file(path: str, name: str, content: bytes) -> Request:
    parts = [(f'name="{field}"', value.encode()) for field, value in (("source", "en"), ("target", "de"))]
    parts.append((f'name="file"; filename="{name}"', content))
    body = b"".join(
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + value + b"\r\n"
        for head, value in parts
    )
    return Request(path, body + f"--{BOUNDARY}--\r\n".encode(), f"multipart/form-data; boundary={BOUNDARY}")


def html(**fields: object) -> Request:
    return of_json("/translate", source="en", target="de", format="html", **fields)


LIGHT = of_json("/v1/translate", text="A man sleeps in the park.", to="de")
LIGHT_PROMPT = of_json("/v1/completions", prompt="A man sleeps", max_tokens=8)
HEALTH = Request("/health", b"")
TERMS = {word: (word + " und noch ein Wort ") * 4 for word in ("women", "harbour", "fish", "tourists", "summer")}
EXPENSIVE: dict[str, list[Request]] = {
    "nothing": [],
    "/v1/translate, 19,000 characters": [of_json("/v1/translate", text=WORDS * 180, to="de")],
    "/v1/translate, beam and nbest 16, aligned": [
        of_json("/v1/translate", text=WORDS * 50, to="de", beam=16, nbest=16, align=True, confidence="words")
    ],
    "/v1/translate, glossary": [of_json("/v1/translate", text=WORDS * 40, to="de", glossary=TERMS, beam=8, nbest=4)],
    "/v1/translate, sampling": [of_json("/v1/translate", text=WORDS * 20, to="de", sample=True, nbest=16)],
    "/v1/translate, slow to split": [
        of_json("/v1/translate", text=text, to="de", beam=1)
        for text in ("U.K. " * 4000, "A.B." * 5000, "\u0301" * 9000)
    ],
    "/v1/translate, invalid": [
        of_json("/v1/translate", text=[0] * 300_000),
        of_json("/v1/translate", **{f"x{n}": 0 for n in range(60_000)}),
    ],
    "/v1/alternatives": [
        of_json("/v1/alternatives", text=WORDS, to="de", output="Die zwei alten Frauen " * 6, position=100, count=16)
    ],
    "/translate, HTML": [
        html(q="<b>a</b>" * 19_000), html(q="<p>A man</p>" * 900), html(q="<sup>" * 40_000), html(q="<b>" * 66_000)
    ],
    "/translate, auto, 1,000 texts": [of_json("/translate", q=["A man sleeps."] * 1000, source="auto", target="de")],
    "/detect": [of_json("/detect", q=["A man sleeps."] * 1000)],
    "/translate_file, 10 MB of HTML": [of_file("/translate_file", "a.html", b"<b></b>" * 1_400_000)],
    "/v1/documents, text": [of_file("/v1/documents", "a.txt", WORDS.encode() * 9000)],
    "/v1/documents, form of line ends": [of_file("/v1/documents", "a.txt", b"\r\n--" * 2_000_000)],
    "/v1/completions, 16 outputs": [
        of_json("/v1/completions", prompt=[f"{n} {WORDS}" for n in range(25)], n=16, max_tokens=900)
    ],
    "/v1/completions, long prompts": [
        of_json("/v1/completions", prompt=[f"{n} {WORDS * 37}" for n in range(5)], max_tokens=8),
        of_json("/v1/completions", prompt=[f"{n} {WORDS}" for n in range(180)], max_tokens=8),
    ],
    "/v1/completions, scores of 19,000 characters": [
        of_json("/v1/completions", prompt=prompt, max_tokens=0, echo=True, logprobs=1)
        for prompt in (WORDS * 180, [WORDS] * 180)
    ],
    "/inspect/look": [of_json("/inspect/look", text=WORDS * 9, to="de", beam=16)],
    "/inspect/reference": [of_json("/inspect/reference", text=WORDS * 9, reference=WORDS * 9, to="de")],
}  # fmt: skip
"""The most expensive legal requests of each kind, and some that are refused late."""
EXPENSIVE["all of these"] = [request for requests in EXPENSIVE.values() for request in requests]


@dataclass
class Responses:
    """What the server has answered."""

    statuses: Counter[int] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    wrong: set[bytes] = field(default_factory=set)

    async def post(self, port: int, request: Request) -> bytes:
        """Send a request, and count its response; returns the body."""
        start = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request.raw())
            answer = await reader.read()
        finally:
            writer.close()
        head = answer.split(b"\r\n\r\n")[0].lower()
        status = int(head.split(b" ", 2)[1]) if head else 0
        self.statuses[status] += 1
        self.waits.append(time.perf_counter() - start)
        if status >= 500 and (status != 503 or b"retry-after" not in head):
            self.wrong.add(answer[-300:])
        return answer.partition(b"\r\n\r\n")[2]


def main() -> None:
    """Measure, print and check."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--clients", type=int, default=8, help="of each kind of request")
    parser.add_argument("--seconds", type=float, default=10, help="for each kind of request")
    parser.add_argument("--only", default="", help="kinds of requests that contain this")
    parser.add_argument("--attack", action="store_true", help="misuse connections instead")
    options = parser.parse_args()
    kinds = {name: requests for name, requests in EXPENSIVE.items() if options.only in name}
    if options.smoke:
        options.clients, options.seconds = 1, 0.5
        kinds = {name: requests for name, requests in kinds.items() if "alternatives" in name or "detect" in name}
    setting = print_setting(
        model=str(find_model(options.model)), clients=options.clients, seconds=options.seconds, seed=SEED,
        **{"load average before": os.getloadavg()[0]},
    )  # fmt: skip
    keys = "the-key-that-is-right-0123456789" if options.attack else ""
    with (
        tempfile.TemporaryDirectory() as folder,
        server(find_model(options.model), keys, random_language_model(Path(folder))) as (port, process),
    ):
        if options.attack:
            results = asyncio.run(attack(port, process.pid, keys, 50 if options.smoke else 1))
            results["SIGTERM"] = {"s": end(process)}
        else:
            asyncio.run(beside(port, [], 1, 1.0))  # warm-up
            results = {
                name: asyncio.run(beside(port, requests, options.clients, options.seconds))
                for name, requests in kinds.items()
            }
            results["SIGTERM under load"] = {"s": asyncio.run(end_under_load(port, process, kinds))}
    print(f"load average after: {os.getloadavg()[0]}")
    for name, figures in results.items():
        print(f"{name:46} " + "  ".join(f"{key} {value:,.3f}" for key, value in figures.items()))
    write_results(options, setting, results)
    slow = [
        name
        for name, facts in results.items()
        if facts.get("median, s", 0) >= MEDIAN or facts.get("worst, s", 0) >= WORST
    ]
    if slow and not options.smoke:
        sys.exit(f"a light client waited too long beside: {'; '.join(slow)}")


def random_language_model(folder: Path) -> Path:
    """Write a language model that never ends a text, with the vocabulary of the bundled model."""
    torch.manual_seed(SEED)
    tokenizer = Tokenizer.load(find_model(None) / "tokenizer.model")
    model = DecoderOnly(DecoderOnlyConfig(), tokenizer.vocab_size).eval()
    with torch.no_grad():
        model.output_weight_VD[EOS] = 0.0
    save_model(folder, model, tokenizer, {"task": "language_model", "max_length": 1024})
    return folder


async def beside(port: int, requests: Sequence[Request], clients: int, seconds: float) -> dict[str, float]:
    """The waits of a light client while others repeat their requests."""
    others, light, health = Responses(), Responses(), Responses()

    async def repeat(responses: Responses, request: Request, pause: float) -> None:
        while True:
            with suppress(ConnectionError):
                await responses.post(port, request)
            await asyncio.sleep(pause)

    heavy = [asyncio.create_task(repeat(others, request, 0.01)) for request in requests for _ in range(clients)]
    await asyncio.sleep(min(1.0, seconds))
    probe = LIGHT_PROMPT if {request.path for request in requests} == {LIGHT_PROMPT.path} else LIGHT
    probes = [asyncio.create_task(repeat(light, probe, 0.1)), asyncio.create_task(repeat(health, HEALTH, 0.1))]
    await asyncio.sleep(seconds)
    start = time.perf_counter()
    while not (light.waits and health.waits) and time.perf_counter() - start < 120:
        await asyncio.sleep(0.05)
    for task in [*probes, *heavy]:
        task.cancel()
    await asyncio.gather(*probes, *heavy, return_exceptions=True)
    await asyncio.sleep(0.5)  # the server drops what they have sent
    assert not others.wrong, others.wrong
    assert {*light.statuses, *health.statuses} == {200}, (light.statuses, health.statuses)
    return {
        "median, s": statistics.median(light.waits),
        "worst, s": max(light.waits),
        "health, worst, s": max(health.waits),
        "responses to the others": others.statuses.total(),
        "of these 200": others.statuses[200],
    }


async def attack(port: int, process: int, key: str, divisor: int) -> dict[str, dict[str, float]]:
    """Misuse connections; returns what a light client waits in the meantime."""
    light, wrong = Responses(), Responses()
    allowed = Request(LIGHT.path, LIGHT.body, headers=f"Authorization: Bearer {key}\r\n")
    results: dict[str, dict[str, float]] = {}
    for _ in range(20):
        await light.post(port, allowed)
    before = memory(process)

    async def measured(name: str, count: int) -> None:
        light.waits.clear()
        for _ in range(count):
            await light.post(port, allowed)
            await asyncio.sleep(0.1)
        results[name] = {"median, s": statistics.median(light.waits), "worst, s": max(light.waits)}

    probes = max(2, 20 // divisor)
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2_000 // divisor)]
    await measured(f"{len(idle):,} idle connections", probes)

    async def drip(writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            for byte in allowed.raw():
                writer.write(bytes([byte]))
                await asyncio.sleep(0.2)

    async def flood(writer: asyncio.StreamWriter) -> None:  # its responses are never read
        with suppress(ConnectionError, asyncio.TimeoutError):
            for _ in range(50):
                writer.write(Request("/openapi.json", b"").raw(close=False) * 10)
                await asyncio.wait_for(writer.drain(), 1)

    for name, behave in (("clients that write a byte at a time", drip), ("clients that read nothing", flood)):
        tasks = [asyncio.create_task(behave(writer)) for _, writer in idle[: 200 // divisor + 1]]
        await measured(f"{len(tasks):,} {name}", probes)
        for task in tasks:
            task.cancel()
    for _, writer in idle:
        writer.transport.abort()
    guesses = iter(range(20_000 // divisor))

    async def guess() -> None:
        for number in guesses:
            await wrong.post(
                port, Request(LIGHT.path, LIGHT.body, headers=f"Authorization: Bearer {key[:-8]}{number:08}\r\n")
            )

    start = time.perf_counter()
    tasks = [asyncio.create_task(guess()) for _ in range(8)]
    await measured("8 clients that guess keys", probes)
    await asyncio.gather(*tasks)
    results["8 clients that guess keys"]["guesses/s"] = wrong.statuses.total() / (time.perf_counter() - start)
    assert {*wrong.statuses} == {403}, wrong.statuses
    assert {*light.statuses} == {200}, light.statuses
    results["memory of the server"] = {"before, MB": before / 1e6, "after, MB": memory(process) / 1e6}
    return results


def memory(process: int) -> float:
    """Resident memory in bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def end_under_load(
    port: int, process: "subprocess.Popen[bytes]", kinds: Mapping[str, Sequence[Request]]
) -> float:
    """Seconds that SIGTERM takes while requests of these kinds are in flight."""
    responses = Responses()
    requests = {id(request): request for requests in kinds.values() for request in requests}.values()
    tasks = [asyncio.create_task(responses.post(port, request)) for request in requests]
    await asyncio.sleep(2)
    seconds = await asyncio.to_thread(end, process)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not responses.wrong, responses.wrong
    return seconds


def end(process: "subprocess.Popen[bytes]") -> float:
    """Seconds that SIGTERM takes."""
    start = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    process.wait(35)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
