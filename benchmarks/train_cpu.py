"""Training speed on a CPU: ours, torch.nn.Transformer and Hugging Face Marian, same sizes, same sentences.

    python benchmarks/train_cpu.py [--rounds 5] [--out results.json]

All three take turns, one batch each, in one process, so that a busy machine slows all of them alike. Only real target
tokens count. Everybody gets batches whose sentences have similar lengths, dropout, label smoothing and fused Adam.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from peers import HuggingFaceMarian, TorchTransformer, padded, peer_loss
from setting import describe, wmt_like_corpus
from torch import nn

from transduce.data.plan import BatchPlan
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.text.tokenizer import Tokenizer
from transduce.training.loader import Batch, Loader
from transduce.training.loss import smoothed_cross_entropy
from transduce.training.recipe import load_recipe


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    recipe = load_recipe(None, options.preset, {}, [])
    V, smoothing = recipe.tokenizer.vocab_size, recipe.train.label_smoothing
    with tempfile.TemporaryDirectory() as folder:
        shards = wmt_like_corpus(Path(folder), 20_000, V, max_length=120)
        plan = BatchPlan(shards, recipe.train.batch_tokens, seed=1)
        loader = Loader(plan, Tokenizer.__new__(Tokenizer), torch.device("cpu"))
        batches = [loader.batch(number) for number in range(options.rounds + 1)]

    torch.manual_seed(1)
    ours = EncoderDecoder(recipe.model, V)

    def our_loss(batch: Batch) -> torch.Tensor:
        hidden_MD = ours(batch.src_N, batch.src_segments, batch.tgt_M, batch.tgt_segments)
        loss, _ = smoothed_cross_entropy(hidden_MD, batch.labels_M, ours.embedding.weight_VD, smoothing)
        return loss / batch.target_tokens

    systems: dict[str, tuple[nn.Module, Callable[[Batch], torch.Tensor]]] = {"transduce": (ours, our_loss)}
    for name, peer_class in (("torch.nn.Transformer", TorchTransformer), ("Hugging Face Marian", HuggingFaceMarian)):
        peer = peer_class(recipe.model, V).train()
        systems[name] = (peer, lambda batch, peer=peer: peer_loss(peer(p := padded(batch)), p, smoothing))
    steps = {name: training_step(model, loss) for name, (model, loss) in systems.items()}

    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number, batch in enumerate(batches):
        for name, step in steps.items():
            began = time.perf_counter()
            step(batch)
            if number > 0:  # the first batch warms up
                seconds[name].append(time.perf_counter() - began)
    tokens = [batch.target_tokens for batch in batches[1:]]
    report(options, recipe.train.batch_tokens, V, tokens, seconds)


def training_step(model: nn.Module, loss: Callable[[Batch], torch.Tensor]) -> Callable[[Batch], None]:
    """One update of the weights."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(batch: Batch) -> None:
        loss(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def report(options, batch_tokens, vocab_size, tokens, seconds) -> None:  # type: ignore[no-untyped-def]
    """Print the table, and write it as JSON if asked."""
    setting = describe() | {
        "model": options.preset, "vocabulary": vocab_size, "batch tokens": batch_tokens, "batches": len(tokens),
        "threads": torch.get_num_threads(), "seed": 1,
    }  # fmt: skip
    ours = seconds["transduce"]
    rows = {
        name: {
            "tokens_per_second": sum(tokens) / sum(times),
            "ours_is_faster_by": statistics.median(t / o for t, o in zip(times, ours, strict=True)),
        }
        for name, times in seconds.items()
    }
    for key, value in setting.items():
        print(f"{key}: {value}")
    print(f"\n{'training':<24}{'real target tokens/s':>22}{'ours is faster by':>20}")
    for name, row in rows.items():
        print(f"{name:<24}{row['tokens_per_second']:>22,.0f}{row['ours_is_faster_by']:>19.2f}x")
    if options.out:
        options.out.write_text(json.dumps({"setting": setting, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
