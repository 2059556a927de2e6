"""Training throughput on a GPU: ours and Hugging Face Marian, same sizes and lengths, in turns.

    python benchmarks/train_gpu.py [base] [big] [--precision fp8] [--rounds 5] [--steps 50] [--out figures.json]

Ours is `transduce.train` on a text file, as a user runs it: its figures come from the run's `metrics.jsonl`, one line
per round, after a round of warm-up. The peer has its best case: batches that are already on the GPU, sorted by length
over pools of 64 batches; scaled dot-product attention, torch.compile of layers and loss, bfloat16 autocast, fused Adam,
no gradient norm. Compilation for changing shapes goes on for many steps, so the peer is warmed up until two rounds
agree, and the two then take turns. Only real target tokens count, not padding.

First, the loss and the gradients of one step are compared with those in float32.
"""

import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from peers import HuggingFaceMarian, PaddedBatch, batches_by_length, padded, peer_loss, random_pairs
from safetensors.torch import load_file
from setting import SEED, make_parser, news_lengths, print_setting, write_news_like_text, write_results

from transduce import train
from transduce.training.recipe import Recipe, load_recipe

OURS, PEER = "transduce", "Hugging Face Marian"
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TINIEST = tuple(  # few CPUs are fast in bfloat16
    f"model.{name}={value}"
    for name, value in {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 1}.items()
)
MAX_ERROR = {"bfloat16": 0.02, "fp8": 0.3}
"""Relative error of the gradients above which something must be wrong: 0.004 is usual in bfloat16."""
PAPER_STEPS, PAPER_TOKENS = {"base": 100_000, "big": 300_000}, 25_000
"""The paper's training: steps, and target tokens of each."""
TOLERANCE, MAX_WARM_UP = 0.03, 30
"""The peer is warm if two rounds differ by at most this share; the number of rounds after which it is given up."""


@dataclass(frozen=True)
class Workload:
    """The corpus, and the settings of the runs on it."""

    folder: Path
    pairs: int = 400_000
    words: int = 110
    """The greatest length of a sentence; nearly every word is one token."""
    vocabulary: int = 32_768
    batch_tokens: int = 25_600
    precision: str = "bfloat16"
    model: tuple[str, ...] = ()
    """Assignments that change the preset's sizes."""

    @property
    def text(self) -> Path:
        """The training text, a .tsv file."""
        return self.folder / "train.tsv"

    def settings(self, *more: str) -> list[str]:
        """Assignments for `train`, followed by the given ones."""
        return [
            *(f"tokenizer.vocab_size={self.vocabulary}", "tokenizer.sample_pairs=20000", "data.max_length=120"),
            *(f"train.batch_tokens={self.batch_tokens}", f"train.precision={self.precision}"),
            f"train.seed={SEED}",
            *(*self.model, *more),
        ]

    def recipe(self, preset: str) -> Recipe:
        """The recipe of a preset with these settings."""
        return load_recipe(None, preset, {}, self.settings())


def main() -> None:
    """Compare the gradients, measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("presets", nargs="*", default=["base", "big"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50, help="steps of each system in each round")
    parser.add_argument("--precision", choices=MAX_ERROR, default="bfloat16", help="of our training")
    parser.add_argument("--no-peers", action="store_true", help="leave out the peer")
    options = parser.parse_args()
    if DEVICE.type == "cpu" and not options.smoke:
        parser.error("there is no CUDA GPU; --smoke runs the same steps on the CPU")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRANSDUCE_CACHE"] = f"{folder}/cache"  # the corpus is prepared once, and not kept
        workload = Workload(Path(folder), precision=options.precision)
        if options.smoke:
            model = () if DEVICE.type == "cuda" else TINIEST
            workload = Workload(Path(folder), pairs=100, words=4, vocabulary=450, batch_tokens=128, model=model)
            options.presets, options.rounds, options.steps = ["tiny"], 1, 1
        sizes = {"vocabulary": workload.vocabulary, "batch tokens": workload.batch_tokens, "pairs": workload.pairs}
        length = {"rounds": options.rounds, "steps a round": options.steps}
        ceiling = matrix_product_speed() if DEVICE.type == "cuda" else None
        limit = {"8192-cubed bf16 product, TFLOP/s": ceiling} if ceiling else {}
        setting = print_setting(**sizes, **length, seed=SEED, **limit)
        write_news_like_text(workload.text, news_lengths(workload.pairs, workload.words))
        for preset in options.presets:
            print(f"\n{preset}: {workload.recipe(preset).model}")
            results[preset] = agreement(workload, preset)
            if find_spec("transformers") and not options.no_peers:
                results[preset] |= measure_both(workload, preset, options.rounds, options.steps, fast=not options.smoke)
            else:
                records = our_rounds(workload, preset, options.rounds, options.steps)
                results[preset] |= our_facts(workload, preset, records)
            if ceiling:
                results[preset]["% of a large product"] = 100 * results[preset]["TFLOP/s of the model"] / ceiling
            write_results(options, setting, results)


def matrix_product_speed() -> float:
    """TFLOP/s of a large matrix product, which no model exceeds."""
    a, b = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(20):
        a @ b
    end.record()
    torch.cuda.synchronize()
    return round(20 * 2 * 8192**3 / start.elapsed_time(end) / 1e9)


def agreement(workload: Workload, preset: str) -> dict[str, float]:
    """Compare loss and gradients of the first step with those in float32, without dropout."""
    losses, gradients, half = {}, {}, workload.precision
    for precision in ("float32", half):
        with tempfile.TemporaryDirectory(dir=workload.folder) as out:
            sets = workload.settings(
                "train.steps=1", "model.dropout=0", f"train.precision={precision}",
                f"train.batch_tokens={workload.batch_tokens // 4}",
            )  # fmt: skip
            train(f"{out}/run", train=workload.text, preset=preset, sets=sets)
            losses[precision] = training_records(Path(out, "run"))[0]["loss"]
            moments = load_file(Path(out, "run/checkpoints/step-1/optimizer.safetensors"))
            # After one step, Adam's first moment is the gradient times 1 - beta1.
            gradients[precision] = {name: x for name, x in moments.items() if name.startswith("exp_avg.")}
    pairs = [(gradients[half][name].double(), true.double()) for name, true in gradients["float32"].items()]
    errors = [(ours - true).norm().item() for ours, true in pairs]
    norms = [true.norm().item() for _, true in pairs]
    total = torch.tensor(errors).norm().item() / torch.tensor(norms).norm().item()
    # The bias of the keys has no gradient, as softmax does not change with it.
    each = [error / norm for error, norm in zip(errors, norms, strict=True) if norm > 1e-5 * max(norms)]
    facts = {
        "loss, float32": losses["float32"],
        f"loss, {half}": losses[half],
        "gradients, relative error": total,
        "gradients, relative error, median tensor": statistics.median(each),
    }
    print_facts(facts)
    assert total < MAX_ERROR[half], f"the gradients in {half} differ from those in float32 by {total:.1%}"
    return facts


def our_rounds(workload: Workload, preset: str, rounds: int, steps: int) -> list[dict[str, Any]]:
    """Train for some rounds, and return their lines of metrics; a round before them is a warm-up."""
    gc.collect()  # the graphs of the runs before
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    total = (rounds + 1) * steps
    sets = workload.settings(f"train.steps={total}", f"train.save_every={total}", f"train.log_every={steps}")
    with tempfile.TemporaryDirectory(dir=workload.folder) as out:
        train(f"{out}/run", train=workload.text, preset=preset, sets=sets)
        return training_records(Path(out, "run"))[1:]


def our_facts(workload: Workload, preset: str, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of our rounds."""
    facts = speed_facts(OURS, [record["tokens_per_second"] for record in records])
    facts["peak memory, GB"] = records[0]["memory_gb"]
    flops = flops_per_token(workload.recipe(preset))
    facts["GFLOP per target token and its source token"] = flops / 1e9
    facts["TFLOP/s of the model"] = flops * facts[OURS] / 1e12
    if preset in PAPER_STEPS:
        seconds = PAPER_STEPS[preset] * PAPER_TOKENS / facts[OURS]
        facts["the paper's steps, extrapolated, minutes"] = seconds / 60
    print_facts(facts)
    return facts


def measure_both(workload: Workload, preset: str, rounds: int, steps: int, *, fast: bool) -> dict[str, Any]:
    """Train ours and the peer in turns; the first round of ours is without the peer, whose memory would count."""
    records = our_rounds(workload, preset, 1, steps)
    start = time.perf_counter()
    peer = peer_steps(workload, workload.recipe(preset), fast=fast)

    def peer_round() -> float:
        synchronize()
        start = time.perf_counter()
        tokens = sum(next(peer) for _ in range(steps))
        synchronize()
        return tokens / (time.perf_counter() - start)

    count, is_warm = warm_up(peer_round, MAX_WARM_UP if fast else 2)
    peer_facts = {"peer: rounds of warm-up": count, "peer: warm-up, s": time.perf_counter() - start}
    speeds = []
    for number in range(rounds):
        if number:  # the first one is measured already
            records += our_rounds(workload, preset, 1, steps)
        speeds.append(peer_round())
    facts = our_facts(workload, preset, records)
    peer_facts |= speed_facts(PEER, speeds)
    if is_warm:
        peer_facts[f"ours / {PEER}"] = facts[OURS] / peer_facts[PEER]
    else:
        print(f"  the peer still changes by more than {TOLERANCE:.0%} after {count} rounds, so no ratio is given")
    print_facts(peer_facts)
    return facts | peer_facts


def warm_up(run_round: Callable[[], float], most: int) -> tuple[int, bool]:
    """Run rounds until the speeds of two in succession agree; returns their number, and whether they did."""
    before = run_round()
    for count in range(2, most + 1):
        speed = run_round()
        if abs(speed - before) <= TOLERANCE * before:
            return count, True
        before = speed
    return most, False


def training_records(run: Path) -> list[dict[str, Any]]:
    """The measurements of a run, one per `train.log_every` steps."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == "train"]


def speed_facts(name: str, speeds: Sequence[float]) -> dict[str, Any]:
    """The median of the rounds, and their range."""
    return {name: statistics.median(speeds), f"{name}, lowest and highest": [round(min(speeds)), round(max(speeds))]}


def print_facts(facts: dict[str, Any]) -> None:
    """Print each fact on a line."""
    for name, value in facts.items():
        print(f"  {name}: {value if isinstance(value, list) else f'{value:,.4g}' if value < 1000 else f'{value:,.0f}'}")


def flops_per_token(recipe: Recipe) -> float:
    """Forward and backward, only matrix products: 6 for each weight that is applied to a token, on both sides."""
    m = recipe.model
    attention, feed_forward = 4 * m.d_model**2, 2 * m.d_model * m.d_ff
    encoder = m.encoder_layers * (attention + feed_forward)
    decoder = m.decoder_layers * (2 * attention + feed_forward)
    return 6.0 * (encoder + decoder + recipe.tokenizer.vocab_size * m.d_model)


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def peer_steps(workload: Workload, recipe: Recipe, *, fast: bool) -> Iterator[int]:
    """Train Marian; yields the target tokens of each step."""
    torch.manual_seed(SEED)
    peer = HuggingFaceMarian(recipe.model, workload.vocabulary).to(DEVICE).train()
    optimizer = torch.optim.Adam(peer.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    pairs = random_pairs(news_lengths(min(workload.pairs, 150_000), workload.words), workload.vocabulary)
    batches = [padded(batch, DEVICE) for batch in batches_by_length(pairs, workload.batch_tokens, 128)]
    real = sum(batch.target_tokens for batch in batches) / sum(batch.labels_BT.numel() for batch in batches)
    print(f"  Marian's batches hold {real:.1%} real target tokens")
    loss = make_loss(peer, recipe.train.label_smoothing, fast=fast)
    for batch in cycle(batches):
        with torch.autocast(DEVICE.type, torch.bfloat16):
            value = loss(batch)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield batch.target_tokens


def make_loss(peer: HuggingFaceMarian, smoothing: float, *, fast: bool) -> Callable[[PaddedBatch], torch.Tensor]:
    """The peer's loss; if `fast`, the layers, and the projection with the loss, are compiled for any shape.

    Compiled as one graph for any shape, the peer had not taken its first step after five minutes.
    """

    def head(hidden_BTD: torch.Tensor, labels_BT: torch.Tensor) -> torch.Tensor:
        return peer_loss(peer.project(hidden_BTD), labels_BT, smoothing)

    if fast:
        head = torch.compile(head, dynamic=True, fullgraph=True)
        for layer in peer.layers:
            layer.compile(dynamic=True, fullgraph=True)
    return lambda batch: head(peer.hidden(batch), batch.labels_BT)


if __name__ == "__main__":
    main()
