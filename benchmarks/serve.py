"""A server beside the bare Translator: requests/s, latency and output tokens/s with 1, 8 and 64 clients.

    python benchmarks/serve.py [--sentences 256] [--rounds 3] [--out results.json]
    python benchmarks/serve.py --model runs/demo --sentences 2000

Without `--model`: the paper's base model with random weights that never end a sentence before its limit, so that
outputs have as many tokens as sources with their end markers; sentences of 28 tokens in the mean. With it: that model
on test sentences of the demo corpus. A request is a sentence, beam 4. The server is a process of its own; clients share
this one. In every round the Translator, in this process, first translates the same sentences all at once.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from setting import describe

from transduce.corpora.demo import demo_corpus
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.models.saved import save_model
from transduce.text.tokenizer import EOS, Tokenizer, TokenizerConfig
from transduce.translator import Translator

CLIENTS, SEED = (1, 8, 64), 1
Pairs = list[tuple[str, str]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    setting: dict[str, Any] = describe() | {
        "model": str(options.model or "base, random weights"),
        "sentences": options.sentences,
        "rounds": options.rounds,
        "threads": torch.get_num_threads(),
    }
    for key, value in setting.items():
        print(f"{key}: {value}")
    pairs = demo_corpus(train=5000, test=max(options.sentences, 1000)).test
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or random_base_model(Path(folder), pairs)
        texts = [text for text, _ in pairs] if options.model else long_texts(model, pairs)
        results = measure(model, texts[: options.sentences], options.rounds)
    if options.out:
        options.out.write_text(json.dumps({"setting": setting, "results": results}, indent=1) + "\n")


def random_base_model(folder: Path, pairs: Pairs) -> Path:
    """A model folder."""
    torch.manual_seed(SEED)
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), TokenizerConfig())
    model = EncoderDecoder(EncoderDecoderConfig(), tokenizer.vocab_size).eval()
    with torch.no_grad():
        model.embedding.weight_VD[EOS] = 0.0
    save_model(folder, model, tokenizer, {"search": {"max_extra": 0}})
    return folder


def long_texts(model: Path, pairs: Pairs) -> list[str]:
    """Demo sentences put together, cut to lengths like those of news text: log-normal, 28 tokens in the mean."""
    tokenizer = Tokenizer.load(model / "tokenizer.model")
    random = np.random.default_rng(SEED)
    lengths = np.clip(np.exp(random.normal(3.15, 0.55, size=len(pairs))), 1, 200).astype(int)
    many = [" ".join(pairs[(n + k) % len(pairs)][0] for k in range(20)) for n in range(len(pairs))]
    return [tokenizer.decode(tokenizer.encode(text)[:n]) for text, n in zip(many, lengths, strict=True)]


def measure(model: Path, texts: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Figures of each number of clients, and of the Translator alone, in turns; the first round warms up."""
    translator = Translator.load(model)
    print(f"engine: {translator.engine.name}")
    found: dict[str, list[dict[str, float]]] = {}
    with server(model) as port:
        for turn in range(-1, rounds):
            figures = {"Translator alone": alone(translator, texts)}
            for clients in CLIENTS:
                some = texts if clients > 1 else texts[: len(texts) // 4]
                figures[f"{clients} clients"] = asyncio.run(clients_at_work(port, some, clients))
            if turn >= 0:
                for name, facts in figures.items():
                    facts["share of the Translator's"] = facts["tokens/s"] / figures["Translator alone"]["tokens/s"]
                    found.setdefault(name, []).append(facts)
    middle = {
        name: {key: statistics.median(one[key] for one in some) for key in some[0]} for name, some in found.items()
    }
    for name, facts in middle.items():
        print(f"\n{name}")
        for key, value in facts.items():
            lowest, highest = (pick(one[key] for one in found[name]) for pick in (min, max))
            print(f"  {key:26} {value:10,.3f}   ({lowest:,.3f} to {highest:,.3f})")
    return middle


def alone(translator: Translator, texts: list[str]) -> dict[str, float]:
    """All sentences at once, without a server."""
    began = time.perf_counter()
    outputs = translator.hypotheses(texts)
    seconds = time.perf_counter() - began
    return {"sentences/s": len(texts) / seconds, "tokens/s": sum(len(best[0].tokens) for best in outputs) / seconds}


async def clients_at_work(port: int, texts: list[str], clients: int) -> dict[str, float]:
    """Clients that take the next sentence as soon as they have an answer."""
    waiting = iter(texts)
    latencies: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for text in waiting:
            body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
            head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            began = time.perf_counter()
            writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer.split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            assert answer.startswith(b"http/1.1 200"), answer
            latencies.append(time.perf_counter() - began)
        writer.close()

    before, began = output_tokens(port), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - began
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "requests/s": len(texts) / seconds,
        "tokens/s": (output_tokens(port) - before) / seconds,
        "latency, median, s": cuts[49],
        "latency, p99, s": cuts[98],
    }


def output_tokens(port: int) -> float:
    """As the server counts them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("transduce_output_tokens_total "))


@contextmanager
def server(model: Path) -> Iterator[int]:
    """The port of a server process."""
    command = [sys.executable, "-m", "transduce", "serve", "-m", f"en-de={model}", "--port", "0"]
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(command, stderr=said) as process:
        line = ""
        while not line.endswith("\n"):
            time.sleep(0.2)
            said.seek(0)
            line = said.readline()
        yield int(line.rpartition(":")[2])
        process.terminate()


if __name__ == "__main__":
    main()
