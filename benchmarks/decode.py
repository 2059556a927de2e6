"""Translation speed: our engines, CTranslate2 and Hugging Face generate, the same weights, in turns in one process.

    python benchmarks/decode.py gpu [--rounds 5] [--out results.json]
    python benchmarks/decode.py cpu [--rounds 5] [--threads 2] [--out results.json]

Base size, random weights, sources of 30 tokens with their end marker, outputs of exactly 30 tokens, other sentences in
every round. Everything counts from token ids to the best hypothesis with its score: encoder, search, bookkeeping.
Peers that are not installed are left out, and named. With `--model` and `--text` real sentences are translated as well,
text to text, by the engines named.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from decode_peers import Decode, ctranslate2, hugging_face
from setting import describe

from transduce.engines.choose import pick_engine
from transduce.engines.engine import Job, search_all
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import EOS
from transduce.translator import Translator

V, LENGTH, SEED = 32_000, 30, 1
CASES = {"gpu": [(64, 4), (256, 4), (1024, 4), (64, 1)], "cpu": [(1, 1), (1, 4), (32, 1), (32, 4)]}
"""Sentences at once and beam."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", choices=CASES)
    parser.add_argument("--rounds", type=int, default=5, help="0: real sentences alone")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="on a CPU")
    parser.add_argument("--engines", nargs="*", help="ours; all that run here unless given")
    parser.add_argument("--model", type=Path, help="a trained model for real sentences")
    parser.add_argument("--text", type=Path, help="the sentences, one a line")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    setting: dict[str, Any] = describe() | {
        "vocabulary": V, "tokens in and out": LENGTH, "seed": SEED, "rounds": options.rounds,
    }  # fmt: skip
    if options.where == "cpu":
        setting["threads"] = options.threads
    for key, value in setting.items():
        print(f"{key}: {value}")
    names = options.engines or {"gpu": ["gpu"], "cpu": ["native", "plain"]}[options.where]
    results: dict[str, dict[str, float]] = {}
    if options.rounds:
        with tempfile.TemporaryDirectory() as folder:
            systems = all_systems(options.where, names, Path(folder), options.threads)
            for sentences, beam in CASES[options.where]:
                results[f"{sentences} sentences, beam {beam}"] = measure(systems, sentences, beam, options.rounds)
    if options.model:
        results["real sentences"] = real_sentences(options.model, options.text, options.where, names)
    if options.out:
        options.out.write_text(json.dumps({"setting": setting, "results": results}, indent=1) + "\n")


def random_model() -> EncoderDecoder:
    """A base model that never wants to stop."""
    torch.manual_seed(SEED)
    model = EncoderDecoder(EncoderDecoderConfig(), V).eval()
    with torch.no_grad():
        model.embedding.weight_VD[EOS] = 0.0
    return model


def all_systems(where: str, names: list[str], folder: Path, threads: int) -> dict[str, Decode]:
    """Ours and the peers that are installed."""
    device = "cuda" if where == "gpu" else "cpu"
    model = random_model().to(device)
    systems: dict[str, Decode] = {f"transduce {name}": ours(name, model) for name in names}
    if find_spec("ctranslate2"):
        for compute_type in ["float16"] if where == "gpu" else ["int8", "float32"]:
            systems[f"CTranslate2 {compute_type}"] = ctranslate2(model, folder, device, compute_type, threads)
    if find_spec("transformers"):
        dtype = torch.bfloat16 if where == "gpu" else torch.float32
        systems["Hugging Face generate"] = hugging_face(model, device, dtype)
    print("systems:", ", ".join(systems))
    return systems


def ours(name: str, model: EncoderDecoder) -> Decode:
    """One of our engines."""
    engine = pick_engine(name, model)

    def decode(sources: Any, beam: int) -> list[list[int]]:
        found = search_all(engine, [Job(source, []) for source in sources], SearchConfig(beam=beam, max_extra=0))
        return [best[0].tokens for best in found]

    return decode


def measure(systems: dict[str, Decode], sentences: int, beam: int, rounds: int) -> dict[str, float]:
    """Output tokens per second of each system, in turns; the first two rounds warm up."""
    generator = torch.Generator().manual_seed(SEED)
    speeds: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(-2, rounds):
        sources = torch.randint(4, V, (sentences, LENGTH - 1), generator=generator).tolist()
        for name, decode in systems.items():
            found, seconds = timed(decode, sources, beam)
            assert all(len(output) == LENGTH for output in found), f"{name}: an output of another length"
            if turn >= 0:
                speeds[name].append(sentences * LENGTH / seconds)
    facts = {name: statistics.median(values) for name, values in speeds.items()}
    print(f"\n{sentences} sentences at once, beam {beam}: output tokens/s, median (lowest to highest)")
    for name, values in speeds.items():
        first = next(iter(speeds.values()))
        ratio = statistics.median(a / b for a, b in zip(first, values, strict=True))
        print(f"  {name:28} {facts[name]:>9,.0f} ({min(values):,.0f} to {max(values):,.0f})  ours / it {ratio:.2f}")
        facts[f"first of ours / {name}"] = ratio
    return facts


def real_sentences(model: Path, text: Path, where: str, names: list[str]) -> dict[str, float]:
    """Text to text: tokenising, searching with the paper's beam, detokenising."""
    lines = text.read_text(encoding="utf-8").splitlines()
    facts: dict[str, float] = {}
    print(f"\nreal sentences: {len(lines):,} lines, {sum(len(line.split()) for line in lines):,} words")
    for name in names:
        translator = Translator.load(model, device="cuda" if where == "gpu" else "cpu", engine=name)
        for beam in (1, 4):
            translator.translate(lines[:2000], beam=beam)
            found, seconds = timed(translator.hypotheses, lines, beam=beam)
            tokens = sum(len(best[0].tokens) for best in found)
            facts[f"{name}, beam {beam}, sentences/s"] = len(lines) / seconds
            facts[f"{name}, beam {beam}, output tokens/s"] = tokens / seconds
            print(f"  {name}, beam {beam}: {len(lines) / seconds:,.0f} sentences/s, {tokens / seconds:,.0f} tokens/s")
    return facts


def timed(function: Callable[..., Any], *words: Any, **options: Any) -> tuple[Any, float]:
    """What a function gives, and the seconds it takes."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    found = function(*words, **options)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return found, time.perf_counter() - began


if __name__ == "__main__":
    main()
