"""A server compared with the Translator itself: requests/s, latency and output tokens/s with 1, 8 and 64 clients.

    python benchmarks/serve.py [--sentences 256] [--rounds 3] [--out figures.json]
    python benchmarks/serve.py --model runs/demo --sentences 2000
    python benchmarks/serve.py --fairness

Without `--model`: the paper's base model with random weights that never end a sentence before its limit, so that
outputs have as many tokens as their sources; sentences of 28 tokens on average. With it: that model on test sentences
of the demo corpus. A request is a sentence, with beam 4. The server is a process of its own; all clients run in this
one. In every round the Translator, in this process, first translates the same sentences all at once.

With `--fairness`: the latency of a short sentence by itself and beside other clients, which send the next request as
soon as they have an answer: with a wide beam, with many different length penalties, and with long texts. The model is
the bundled one, unless `--model` names another.
"""

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from setting import (
    SEED,
    SMOKE_MODEL,
    SMOKE_VOCABULARY,
    make_parser,
    news_lengths,
    print_setting,
    save_random_model,
    write_results,
)

from transduce.corpora.demo.corpus import demo_corpus
from transduce.models.encoder_decoder import EncoderDecoderConfig
from transduce.models.folder import find_model
from transduce.tokenizers.tokenizer import Tokenizer
from transduce.translation.translator import Translator


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fairness", action="store_true", help="latency of a sentence beside other clients")
    options = parser.parse_args()
    if options.fairness:
        model = find_model(options.model)
        setting = print_setting(model=str(model), rounds=options.rounds, seed=SEED)
        write_results(options, setting, measure_fairness(model, options.rounds))
        return
    config, vocabulary, clients = EncoderDecoderConfig(), 8000, (1, 8, 64)
    if options.smoke:
        config, vocabulary, clients, options.sentences, options.rounds = SMOKE_MODEL, SMOKE_VOCABULARY, (1, 2), 8, 1
    setting = print_setting(
        model=str(options.model or f"random weights, {config}"), sentences=options.sentences, clients=list(clients),
        rounds=options.rounds, threads=torch.get_num_threads(), seed=SEED,
    )  # fmt: skip
    pairs = demo_corpus(SEED, train=5000, valid=0, test=max(options.sentences, 1000)).test
    with tempfile.TemporaryDirectory() as folder:
        if options.model:
            model, texts = options.model, [text for text, _ in pairs]
        else:
            model = save_random_model(Path(folder), config, vocabulary, (text for pair in pairs for text in pair))
            texts = long_texts(model, [text for text, _ in pairs])
        results = measure(model, texts[: options.sentences], clients, options.rounds)
    write_results(options, setting, results)


def long_texts(model: Path, sentences: list[str]) -> list[str]:
    """Demo sentences, joined and cut to the lengths of news text."""
    tokenizer = Tokenizer.load(model / "tokenizer.model")
    joined = [" ".join((sentences * 2)[n : n + 20]) for n in range(len(sentences))]
    lengths = news_lengths(len(sentences), 200)[:, 0]
    return [tokenizer.decode(tokenizer.encode(text)[:n]) for text, n in zip(joined, lengths, strict=True)]


def measure(model: Path, texts: list[str], client_counts: Sequence[int], rounds: int) -> dict[str, dict[str, float]]:
    """Medians for each number of clients and for the Translator, in turns; the first round is a warm-up."""
    translator = Translator.load(model)
    print(f"engine: {translator.engine.name}")
    measured: dict[str, list[dict[str, float]]] = {}
    with server(model) as (port, _):
        for turn in range(-1, rounds):
            figures = {TRANSLATOR: without_server(translator, texts)}
            for clients in client_counts:
                sentences = texts if clients > 1 else texts[: len(texts) // 4]
                figures[f"{clients} client{'s' * (clients > 1)}"] = asyncio.run(with_clients(port, sentences, clients))
            if turn >= 0:
                for name, facts in figures.items():
                    share = facts["output tokens/s"] / figures[TRANSLATOR]["output tokens/s"]
                    if name != TRANSLATOR:
                        facts["% of the Translator's"] = 100 * share
                    measured.setdefault(name, []).append(facts)
    medians = {
        name: {key: statistics.median(figures[key] for figures in turns) for key in turns[0]}
        for name, turns in measured.items()
    }
    for name, facts in medians.items():
        print(f"\n{name}")
        for key, value in facts.items():
            values = [figures[key] for figures in measured[name]]
            print(f"  {key:26} {value:10,.3f}   ({min(values):,.3f} to {max(values):,.3f})")
    return medians


def without_server(translator: Translator, texts: list[str]) -> dict[str, float]:
    """Translate all sentences at once."""
    start = time.perf_counter()
    outputs = translator.hypotheses(texts)
    seconds = time.perf_counter() - start
    tokens = sum(len(best[0].tokens) for best in outputs)
    return {"requests/s": len(texts) / seconds, "output tokens/s": tokens / seconds}


async def with_clients(port: int, texts: list[str], clients: int) -> dict[str, float]:
    """Translate with clients that send the next sentence as soon as they have an answer."""
    unsent = iter(texts)
    latencies: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for text in unsent:
            body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
            head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            start = time.perf_counter()
            writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer.split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            assert answer.startswith(b"http/1.1 200"), answer
            latencies.append(time.perf_counter() - start)
        writer.close()

    before, start = output_tokens(port), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - start
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "requests/s": len(texts) / seconds,
        "output tokens/s": (output_tokens(port) - before) / seconds,
        "latency, median, s": cuts[49],
        "latency, p99, s": cuts[98],
    }


PROBE = {"text": "A man sleeps in the park.", "to": "de"}
SENTENCE = "The two old women who live near the harbour sell fresh fish to the tourists every morning of the summer. "
OTHERS: dict[str, list[dict[str, object]]] = {
    "4 clients, beam 16, 20 sentences": [{"text": SENTENCE * 20, "to": "de", "beam": 16}] * 4,
    "60 clients, 60 length penalties, 1 sentence": [
        {"text": SENTENCE, "to": "de", "length_penalty": n / 40} for n in range(60)
    ],
    "60 clients, 60 length penalties, 8 sentences": [
        {"text": SENTENCE * 8, "to": "de", "length_penalty": n / 40} for n in range(60)
    ],
    "30 clients, 19,000 characters": [{"text": SENTENCE * 180, "to": "de"}] * 30,
    "all of these": [],
}
"""Requests of other clients; each client repeats its request."""
OTHERS["all of these"] = [
    *OTHERS["4 clients, beam 16, 20 sentences"],
    *OTHERS["60 clients, 60 length penalties, 1 sentence"][:20],
    *OTHERS["60 clients, 60 length penalties, 8 sentences"][20:40],
    *OTHERS["30 clients, 19,000 characters"][:16],
]
PROBES = 20
TRANSLATOR = "Translator by itself"


def measure_fairness(model: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Latencies of a sentence by itself and beside others, in milliseconds, in turns."""
    latencies: dict[str, list[float]] = {}
    with server(model) as (port, _):
        asyncio.run(probe(port, PROBES))  # warm-up
        for _ in range(rounds):
            for name, requests in OTHERS.items():
                latencies.setdefault("no other clients", []).extend(asyncio.run(probe(port, PROBES)))
                latencies.setdefault(name, []).extend(asyncio.run(beside(port, requests)))
    single = statistics.median(latencies["no other clients"])
    results = {}
    for name, times in latencies.items():
        median, most = statistics.median(times), max(times)
        print(
            f"{name:46} median {median:8.1f} ms ({median / single:5.1f} x)  max {most:8.1f} ms ({most / single:5.1f} x)"
        )
        results[name] = {
            "median, ms": median,
            "slowest, ms": most,
            "median, times": median / single,
            "slowest, times": most / single,
        }
    return results


async def beside(port: int, requests: Sequence[dict[str, object]]) -> list[float]:
    """The latencies of the sentence while other clients repeat their requests."""

    async def client(body: dict[str, object]) -> None:
        while True:
            await post(port, body)

    clients = [asyncio.create_task(client(body)) for body in requests]
    await asyncio.sleep(2)
    found = await probe(port, PROBES)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    await asyncio.sleep(1)  # the server drops what they have sent
    return found


async def probe(port: int, count: int) -> list[float]:
    """The latencies of the sentence, in milliseconds."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        assert (await post(port, PROBE)).startswith(b"HTTP/1.1 200")
        found.append(1000 * (time.perf_counter() - start))
    return found


async def post(port: int, body: dict[str, object]) -> bytes:
    """Post a request to /v1/translate on a connection of its own; returns the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        content = json.dumps(body).encode()
        head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\nConnection: close\r\n\r\n" + content)
        return await reader.read()
    finally:
        writer.close()


def output_tokens(port: int) -> float:
    """The output tokens that the server has counted so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("transduce_output_tokens_total "))


@contextmanager
def server(
    model: Path, key: str = "", language_model: Path | None = None
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start a server process, with an API key if there is one; yields its port and the process."""
    environment = {**os.environ, **({"TRANSDUCE_API_KEYS": key} if key else {})}
    command = [sys.executable, "-m", "transduce", "serve", "-m", f"en-de={model}", "--port", "0"]
    if language_model:
        command += ["-m", f"lm={language_model}"]
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stderr=log, env=environment) as process:
        printed = ""
        while not (ready := re.search(r" on http://\S+:(\d+)\n", printed)):
            if process.poll() is not None:
                sys.exit(f"the server ended with code {process.returncode}:\n{printed}")
            time.sleep(0.2)
            log.seek(0)
            printed = log.read()
        try:
            yield int(ready[1]), process
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
