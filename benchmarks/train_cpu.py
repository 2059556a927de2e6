"""Training throughput on a CPU: ours, torch.nn.Transformer and Hugging Face Marian, same sizes, same sentences.

    python benchmarks/train_cpu.py [--rounds 8] [--ours] [--precision float32] [--out figures.json]

All systems take turns, one batch each, in one process, so that other load on the machine slows all of them equally.
Only real target tokens count. All have dropout, label smoothing and fused Adam; batches hold sentences of similar
lengths, the best case for padding, and then the same sentences in random order. Peers that are not installed are left
out, as are all with `--ours`. With the environment variable TRANSDUCE_NATIVE=0, ours trains without compiled kernels.

Ours takes the steps of `transduce train`, in float32 and, unless products in bfloat16 are slow on this CPU, with
bfloat16 products too; the peers then run under bfloat16 autocast.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from itertools import count

import numpy as np
import torch
from peers import HuggingFaceMarian, PaddedBatch, TorchTransformer, batches_by_length, padded, peer_loss, random_pairs
from setting import SEED, make_parser, news_lengths, print_setting, write_results
from torch import nn

from transduce.data.batch import Batch, to_device
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.training.learner import Learner, make_optimizer
from transduce.training.measured import hopeless_product
from transduce.training.recipe import Recipe, load_recipe
from transduce.translation.task import Translate

Sentences = tuple[Batch, PaddedBatch]
"""The same sentences for us and for the peers."""
Step = Callable[[Sentences], None]
Row = tuple[str, str]
"""A precision and a system."""
OURS = "transduce"
SMOKE = ["tokenizer.vocab_size=450", "train.batch_tokens=64", "model.d_model=8", "model.d_ff=8", "model.num_heads=1"]
"""Few CPUs are fast in bfloat16."""


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--ours", action="store_true", help="leave out the peers")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="instead of all that are fast enough")
    options = parser.parse_args()
    pairs = 20_000
    if options.smoke:
        options.preset, options.rounds, pairs = "tiny", 1, 100

    recipe = load_recipe(None, options.preset, {}, SMOKE if options.smoke else [])
    vocabulary, batch_tokens = recipe.tokenizer.vocab_size, recipe.train.batch_tokens
    setting = print_setting(**{
        "model": options.preset, "vocabulary": vocabulary, "batch tokens": batch_tokens, "rounds": options.rounds,
        "threads": torch.get_num_threads(), "seed": SEED,
    })  # fmt: skip
    corpus = random_pairs(news_lengths(pairs, 120), vocabulary)
    similar = batches_by_length(corpus, batch_tokens, options.rounds + 1)
    shuffled = [pair for batch in similar for pair in batch]
    np.random.default_rng(SEED).shuffle(shuffled)
    per_batch = -(-len(shuffled) // len(similar))
    mixed = [shuffled[start : start + per_batch] for start in range(0, len(shuffled), per_batch)]
    orders = {
        name: [(to_device(Translate().pack(batch), torch.device("cpu")), padded(batch)) for batch in batches]
        for name, batches in (("similar lengths", similar), ("mixed lengths", mixed))
    }
    slow = None if options.precision else hopeless_product()
    if slow:
        print(f"bfloat16: slow on this CPU; a small product takes {slow[1].slowdown:,.0f} times as long as in float32")
    precisions = ["float32", "bfloat16"] if options.smoke or not slow else ["float32"]
    precisions = [options.precision] if options.precision else precisions
    steps = {
        (precision, name): step
        for precision in precisions
        for name, step in systems(recipe, precision, peers=not options.ours).items()
    }
    results = {name: measure(steps, batches) for name, batches in orders.items()}
    for name, rows in results.items():
        print(f"\n{'batches of ' + name:<28}{'precision':>10}{'real target tokens/s':>22}{'ours is faster by':>20}")
        for (precision, system), row in rows.items():
            speeds = f"{row['tokens_per_second']:>22,.0f}{row['ours_is_faster_by']:>19.2f}x"
            print(f"{system:<28}{precision:>10}{speeds}")
    named: dict[str, dict[str, float]] = {}
    for name, rows in results.items():
        for (precision, system), row in rows.items():
            figures = named.setdefault(f"{system}, {precision}", {})
            figures[name] = row["tokens_per_second"]
            if system != OURS:
                figures[f"ours / it, {name}"] = row["ours_is_faster_by"]
    write_results(options, setting, named)


def systems(recipe: Recipe, precision: str, *, peers: bool = True) -> dict[str, Step]:
    """For each system, a function that takes one training step in this precision."""
    torch.manual_seed(SEED)
    vocabulary, smoothing = recipe.tokenizer.vocab_size, recipe.train.label_smoothing
    steps = {OURS: our_step(replace(recipe, train=replace(recipe.train, precision=precision)))}
    classes = {"torch.nn.Transformer": TorchTransformer}
    if find_spec("transformers"):
        classes["Hugging Face Marian"] = HuggingFaceMarian
    for name, peer_class in classes.items() if peers else ():
        steps[name] = peer_step(peer_class(recipe.model, vocabulary).train(), smoothing, half=precision == "bfloat16")
    return steps


def measure(steps: dict[Row, Step], batches: list[Sentences]) -> dict[Row, dict[str, float]]:
    """Throughput of each system and our speed-up over it, batch by batch; the first batch is a warm-up."""
    seconds: dict[Row, list[float]] = {row: [] for row in steps}
    for batch in batches:
        for row, step in steps.items():
            start = time.perf_counter()
            step(batch)
            seconds[row].append(time.perf_counter() - start)
    tokens = sum(padded_batch.target_tokens for _, padded_batch in batches[1:])
    return {
        (precision, system): {
            "tokens_per_second": tokens / sum(times[1:]),
            "ours_is_faster_by": statistics.median(
                theirs / ours for theirs, ours in zip(times[1:], seconds[precision, OURS][1:], strict=True)
            ),
        }
        for (precision, system), times in seconds.items()
    }


def our_step(recipe: Recipe) -> Step:
    """A function that takes a step as `transduce train` does."""
    model = EncoderDecoder(recipe.model, recipe.tokenizer.vocab_size)
    learner = Learner(model, make_optimizer(model, recipe.train), Translate(), recipe.train)
    numbers = count(1)

    def step(batch: Sentences) -> None:
        packed = batch[0]
        learner.compute(packed)
        learner.update(next(numbers), 1e-4, packed.count)

    return step


def peer_step(peer: nn.Module, smoothing: float, *, half: bool) -> Step:
    """A function that updates the weights of a peer once."""
    optimizer = torch.optim.Adam(peer.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(batch: Sentences) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = peer_loss(peer(batch[1]), batch[1].labels_BT, smoothing)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
