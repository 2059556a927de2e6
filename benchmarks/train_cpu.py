"""Training throughput on a CPU: ours, torch.nn.Transformer and Hugging Face Marian, same sizes, same sentences.

    python benchmarks/train_cpu.py [--rounds 8] [--out results.json]

All systems take turns, one batch each, in one process, so that other load on the machine slows all of them equally.
Only real target tokens count. All have dropout, label smoothing and fused Adam; batches hold sentences of similar
lengths, the best case for padding, and then the same sentences in random order. Peers that are not installed are left
out.
"""

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from peers import (
    HuggingFaceMarian,
    PaddedBatch,
    TorchTransformer,
    batches_by_length,
    padded,
    peer_loss,
    random_pairs,
)
from setting import SEED, make_parser, news_lengths, print_setting, write_results
from torch import nn

from transduce.data.batch import Batch, to_device
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.runs.recipe import Recipe, load_recipe
from transduce.tasks.translate import Translate

Sentences = tuple[Batch, PaddedBatch]
"""The same sentences for us and for the peers."""
Step = Callable[[Sentences], None]
SMOKE = ["tokenizer.vocab_size=450", "train.batch_tokens=256", "model.d_model=16", "model.d_ff=32"]


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--out", type=Path)
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
    steps = training_steps(recipe)
    results = {name: measure(steps, batches) for name, batches in orders.items()}
    for name, rows in results.items():
        print(f"\n{'batches of ' + name:<28}{'real target tokens/s':>22}{'ours is faster by':>20}")
        for system, row in rows.items():
            print(f"{system:<28}{row['tokens_per_second']:>22,.0f}{row['ours_is_faster_by']:>19.2f}x")
    write_results(options.out, setting, results)


def training_steps(recipe: Recipe) -> dict[str, Step]:
    """For each system, a function that takes one training step."""
    vocabulary, smoothing = recipe.tokenizer.vocab_size, recipe.train.label_smoothing
    torch.manual_seed(SEED)
    ours, task = EncoderDecoder(recipe.model, vocabulary), Translate()

    def our_loss(batch: Sentences) -> torch.Tensor:
        packed = batch[0]
        loss, _ = task.loss(ours, ours(packed), packed, smoothing)
        return loss / packed.count

    steps = {"transduce": training_step(ours, our_loss)}
    peers = {"torch.nn.Transformer": TorchTransformer}
    if find_spec("transformers"):
        peers["Hugging Face Marian"] = HuggingFaceMarian
    for name, peer_class in peers.items():
        peer = peer_class(recipe.model, vocabulary).train()
        steps[name] = training_step(
            peer, lambda batch, peer=peer: peer_loss(peer(batch[1]), batch[1].labels_BT, smoothing)
        )
    return steps


def measure(steps: dict[str, Step], batches: list[Sentences]) -> dict[str, dict[str, float]]:
    """Throughput of each system and our speed-up over it, batch by batch; the first batch is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for batch in batches:
        for name, step in steps.items():
            start = time.perf_counter()
            step(batch)
            seconds[name].append(time.perf_counter() - start)
    tokens = sum(padded_batch.target_tokens for _, padded_batch in batches[1:])
    return {
        name: {
            "tokens_per_second": tokens / sum(times[1:]),
            "ours_is_faster_by": statistics.median(
                theirs / ours for theirs, ours in zip(times[1:], seconds["transduce"][1:], strict=True)
            ),
        }
        for name, times in seconds.items()
    }


def training_step(model: nn.Module, loss: Callable[[Sentences], torch.Tensor]) -> Step:
    """A function that updates the weights once."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(batch: Sentences) -> None:
        loss(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
