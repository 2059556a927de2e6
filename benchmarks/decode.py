"""Decoding throughput: our engines, CTranslate2 and Hugging Face generate, the same weights, in turns in one process.

    python benchmarks/decode.py gpu [--rounds 5] [--out figures.json]
    python benchmarks/decode.py cpu [--rounds 5] [--threads 2] [--vocab 58101] [--shortlist 1500] [--out figures.json]

Base size, random weights, sources of 30 tokens with their end marker, outputs of exactly 30 tokens, new sentences in
every round. The time is that from token ids to the best hypothesis with its score: encoder, search, bookkeeping.
On a CPU, the speed of `native` is also compared with the peak of 8-bit products and the bandwidth of the machine.
Peers that are not installed are left out. With `--shortlist`, `native` is also measured with a random shortlist that
gives a sentence about this many tokens. With `--model` and `--text`, real sentences are translated as well, from text
to text, by our engines.
"""

import gc
import os
import statistics
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from decode_peers import Decode, ctranslate2, hugging_face
from int8_limits import describe, measure_limits
from setting import (
    SEED,
    SMOKE_MODEL,
    SMOKE_VOCABULARY,
    make_parser,
    print_setting,
    random_model,
    save_random_model,
    write_results,
)

from transduce.corpora.demo.corpus import demo_corpus
from transduce.fast.choose import pick_engine
from transduce.fast.native.engine import NativeEngine
from transduce.fast.native.shortlist import Shortlist
from transduce.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from transduce.search.engine import Engine, Job, search_all
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import EOS
from transduce.translation.translator import Translator

CASES = {"gpu": [(64, 4), (256, 4), (1024, 4), (64, 1)], "cpu": [(1, 1), (1, 4), (32, 1), (32, 4)]}
"""Sentences at once, and beam."""
SMOKE_CASES = [(2, 1), (2, 2)]
ENGINES = {"gpu": ["gpu"], "cpu": ["native", "plain"]}


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("where", choices=CASES)
    parser.add_argument("--rounds", type=int, default=5, help="0: only real sentences")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="on a CPU")
    parser.add_argument("--vocab", type=int, default=32_000, help="tokens of the vocabulary")
    parser.add_argument("--shortlist", type=int, help="also measure native with this many tokens for a sentence")
    parser.add_argument("--engines", nargs="*", help="ours; all that run here unless given")
    parser.add_argument("--no-peers", action="store_true", help="leave out the peers")
    parser.add_argument("--model", type=Path, help="a trained model for real sentences")
    parser.add_argument("--text", type=Path, help="the sentences, one per line")
    options = parser.parse_args()
    if options.model and not options.text:
        parser.error("--model needs --text")
    device = "cuda" if options.where == "gpu" and torch.cuda.is_available() else "cpu"
    if options.where == "gpu" and device == "cpu" and not options.smoke:
        parser.error("there is no CUDA GPU; --smoke runs the kernels in Triton's interpreter")
    torch.set_num_threads(options.threads)
    names = options.engines or ENGINES[options.where]
    config, vocabulary, length, cases = EncoderDecoderConfig(), options.vocab, 30, CASES[options.where]
    if options.smoke:
        config, vocabulary, length, cases, options.rounds = SMOKE_MODEL, SMOKE_VOCABULARY, 2, SMOKE_CASES, 1

    inputs = {"vocabulary": vocabulary, "tokens in and out": length, "seed": SEED, "rounds": options.rounds}
    if device == "cpu":
        inputs["threads"] = options.threads
    setting = print_setting(**inputs)
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if options.rounds:
            model = random_model(config, vocabulary).to(device)
            systems = {f"transduce {name}": ours(make_engine(name, model, options.threads)) for name in names}
            if options.shortlist and "native" in names:
                systems["transduce native, shortlist"] = shortlisted(
                    model, options.shortlist, vocabulary, length, options.threads
                )
            if not options.no_peers:
                systems |= peers(model, Path(folder), device, options.threads)
            print("systems:", ", ".join(systems))
            gc.freeze()  # as `translate` does; without it, one round in five takes 0.1 s more
            limits = measure_limits(options.threads) if "native" in names and not options.smoke else None
            if limits:
                print(f"8-bit peak: {limits.peak * 1e-9:,.0f} GOP/s; bandwidth: {limits.bandwidth * 1e-9:.1f} GB/s")
            for sentences, beam in cases:
                facts = measure(systems, sentences, beam, length, vocabulary, options.rounds, warm_up=not options.smoke)
                if limits:
                    print(" ", describe(facts["transduce native"], sentences, beam, config, vocabulary, limits))
                results[case_name(sentences, beam)] = facts
        if options.smoke:
            texts = [text for pair in demo_corpus(SEED, train=100, valid=0, test=0).train for text in pair]
            saved = save_random_model(Path(folder) / "model", config, vocabulary, texts)
            results["real sentences"] = real_sentences(saved, ["A"], device, names, options.threads)
        elif options.model:
            lines = options.text.read_text(encoding="utf-8").splitlines()
            results["real sentences"] = real_sentences(options.model, lines, device, names, options.threads)
    write_results(options, setting, results)


def case_name(sentences: int, beam: int) -> str:
    """What is measured, in words."""
    search = "greedy" if beam == 1 else f"beam {beam}"
    return f"one by one, {search}" if sentences == 1 else f"{sentences:,} sentences, {search}"


def make_engine(name: str, model: EncoderDecoder, threads: int) -> Engine:
    """One of our engines; `gpu` runs in Triton's interpreter if the model is on a CPU."""
    if name == "gpu" and next(model.parameters()).device.type == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported
        from transduce.fast.gpu.engine import GpuEngine

        return GpuEngine(model, torch.float32)
    return pick_engine(name, model, threads)


def shortlisted(model: EncoderDecoder, size: int, vocabulary: int, length: int, threads: int) -> Decode:
    """Decode with `native` and a shortlist: two thirds of the tokens for all sentences, the others by source token."""
    engine = cast(NativeEngine, pick_engine("native", model, threads))
    generator = np.random.default_rng(SEED)
    lengths = np.full(vocabulary, size // 3 // length)
    lengths[EOS] = size - size // 3
    candidates = [np.sort(generator.choice(np.arange(4, vocabulary), n, replace=False)) for n in lengths]
    lists = (np.concatenate([[0], np.cumsum(lengths)]), np.concatenate(candidates))
    engine.shortlist = Shortlist(*(array("i", numbers.tolist()) for numbers in lists))
    return ours(engine, shortlist=True)


def ours(engine: Engine, *, shortlist: bool = False) -> Decode:
    """Decode with one of our engines."""

    def decode(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        jobs = [Job(tokens=source, prefix=[]) for source in sources]
        # One token more than the source, whose end marker does not count.
        config = SearchConfig(beam=beam, max_extra=1, min_length=len(sources[0]) + 1, shortlist=shortlist)
        outputs = search_all(engine, jobs, config)
        return [best[0].tokens for best in outputs]

    return decode


def peers(model: EncoderDecoder, folder: Path, device: str, threads: int) -> dict[str, Decode]:
    """The peers that are installed, with our weights."""
    systems: dict[str, Decode] = {}
    if find_spec("ctranslate2"):
        for compute_type in ["float16"] if device == "cuda" else ["int8", "float32"]:
            systems[f"CTranslate2 {compute_type}"] = ctranslate2(model, folder, device, compute_type, threads)
    if find_spec("transformers"):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        systems["Hugging Face generate"] = hugging_face(model, device, dtype)
    return systems


def measure(
    systems: dict[str, Decode], sentences: int, beam: int, length: int, vocabulary: int, rounds: int, *, warm_up: bool
) -> dict[str, float]:
    """Output tokens per second of each system, in turns, after two rounds of warm-up."""
    generator = torch.Generator().manual_seed(SEED)
    speeds: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(-2 if warm_up else 0, rounds):
        sources = torch.randint(4, vocabulary, (sentences, length - 1), generator=generator).tolist()
        for name, decode in systems.items():
            outputs, seconds = timed(decode, sources, beam)
            lengths = sorted({len(output) for output in outputs})
            assert lengths == [length], f"{name}: outputs of {lengths} tokens instead of {length}"
            if turn >= 0:
                speeds[name].append(sentences * length / seconds)
    facts = {name: statistics.median(values) for name, values in speeds.items()}
    print(f"\n{case_name(sentences, beam)}: output tokens/s, median (lowest to highest)")
    for name, values in speeds.items():
        first = next(iter(speeds.values()))
        ratio = statistics.median(a / b for a, b in zip(first, values, strict=True))
        print(f"  {name:28} {facts[name]:>9,.0f} ({min(values):,.0f} to {max(values):,.0f})  ours / it {ratio:.2f}")
        if values is not first:
            facts[f"ours / {name}"] = ratio
    return facts


def real_sentences(model: Path, lines: list[str], device: str, names: list[str], threads: int) -> dict[str, float]:
    """Text to text: tokenization, greedy search and the paper's beam search, detokenization."""
    facts: dict[str, float] = {}
    print(f"\nreal sentences: {len(lines):,} lines, {sum(len(line.split()) for line in lines):,} words")
    for name in names:
        translator = Translator.load(model, device=device, engine="plain")
        translator.engine = make_engine(name, translator.model, threads)
        for beam in (1, 4):
            translator.translate(lines[:2000], beam=beam)
            outputs, seconds = timed(translator.hypotheses, lines, beam=beam)
            tokens = sum(len(best[0].tokens) for best in outputs)
            facts[f"{name}, beam {beam}, sentences/s"] = len(lines) / seconds
            facts[f"{name}, beam {beam}, output tokens/s"] = tokens / seconds
            print(f"  {name}, beam {beam}: {len(lines) / seconds:,.0f} sentences/s, {tokens / seconds:,.0f} tokens/s")
    return facts


def timed(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    """The result of a call, and the seconds that it takes."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = function(*arguments, **options)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


if __name__ == "__main__":
    main()
