"""Vectors of texts on a CPU: engines native and plain beside transformers, interleaved.

    python benchmarks/embed_cpu.py minilm all-MiniLM-L6-v2 lines.txt [--texts 307] [--threads 1] [--out figures.json]

The first argument is a model folder (`transduce import`), the second the Hugging Face folder it was made of, the third
a text file with a text on each line. Ours packs texts; transformers gets batches of 32 texts of similar lengths, padded
to the longest. The time, with
tokenization, is CPU time, so that a busy machine matters less; differences are of numbers of vectors of
length 1.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from setting import SEED, make_parser, print_setting, write_results
from torch.nn import functional as F

from transduce.encoders.text_encoder import TextEncoder, Vectors
from transduce.models.encoder_only import EncoderOnly, EncoderOnlyConfig

BATCH = 32
ENGINES = ("native", "plain")
SMOKE = EncoderOnlyConfig(d_model=16, d_ff=32, num_heads=2, layers=1)


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("model", type=Path, nargs="?", help="a model folder")
    parser.add_argument("original", type=Path, nargs="?", help="the same model for transformers")
    parser.add_argument("lines", type=Path, nargs="?", help="a file with a text on each line")
    parser.add_argument("--texts", type=int, default=307)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    systems = smoke_systems() if options.smoke else real_systems(options)
    setting = print_setting(texts=options.texts, threads=options.threads, rounds=options.rounds, seed=SEED)
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    vectors: dict[str, Vectors] = {}
    for _ in range(1 if options.smoke else options.rounds + 1):
        for name, embed in systems.items():
            start = time.process_time()
            vectors[name] = embed()
            seconds[name].append(time.process_time() - start)
    results: dict[str, Any] = {}
    reference, first = [*systems][-1], 0 if options.smoke else 1  # the first round is a warm-up
    for name, values in seconds.items():
        ratio = statistics.median(b / a for a, b in zip(values[first:], seconds[reference][first:], strict=True))
        difference = float(np.abs(vectors[name] - vectors[reference]).max())
        results[name] = {"CPU s": statistics.median(values[first:])}
        if name != reference:
            results[name] |= {f"{reference} / it": ratio, "largest difference": difference}
        print(f"{name:14} {results[name]}")
    write_results(options, setting, results)


def real_systems(options: Any) -> dict[str, Callable[[], Vectors]]:
    """Both engines of ours, and transformers."""
    import transformers

    lines = [line.strip() for line in options.lines.read_text(encoding="utf-8").splitlines() if line.strip()]
    texts = lines[:: max(len(lines) // options.texts, 1)][: options.texts]
    encoders = {name: TextEncoder.load(options.model, engine=name, threads=options.threads) for name in ENGINES}
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.original)
    model = transformers.AutoModel.from_pretrained(options.original).eval()
    length = encoders["plain"].max_length + 2
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))

    @torch.inference_mode()
    def theirs() -> Vectors:
        vectors = np.zeros((len(texts), model.config.hidden_size), np.float32)
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            batch = tokenizer(
                [texts[number] for number in numbers],
                padding=True,
                truncation=True,
                max_length=length,
                return_tensors="pt",
            )
            mask = batch["attention_mask"][..., None]
            mean = (model(**batch)[0] * mask).sum(1) / mask.sum(1)
            vectors[numbers] = F.normalize(mean, dim=1).numpy()
        return vectors

    return {**{name: partial(encoder.embed, texts) for name, encoder in encoders.items()}, "transformers": theirs}


def smoke_systems() -> dict[str, Callable[[], Vectors]]:
    """Both engines with random weights."""
    from transduce.fast.choose import pick_encoder

    torch.manual_seed(SEED)
    model = EncoderOnly(SMOKE, 60).eval()
    ids = [[5, 6, 7], [8]]
    encoder = pick_encoder("native", model)
    assert encoder
    return {"native": lambda: encoder.encode(ids), "again": lambda: encoder.encode(ids)}


if __name__ == "__main__":
    main()
