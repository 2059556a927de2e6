"""Training speed on a GPU: ours and Hugging Face Marian, same sizes, same sentences, in turns in one process.

    python benchmarks/train_gpu.py [base] [big] [--rounds 5] [--steps 20] [--out results.json]

Ours is the real step: shards, batch plan, loader, `Steps`, dropout, label smoothing, fused Adam, gradient norm, a line
of metrics every 50 steps. The peer gets its best: batches that lie on the GPU already, sorted by length over pools of
64 batches; scaled dot-product attention, torch.compile of layers and loss, bfloat16 autocast, fused Adam, no gradient
norm. Only real (not padding) target tokens count.

First, the loss and the gradients of one batch are held against the `reference` engine in float32.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from peers import HuggingFaceMarian, PaddedBatch, peer_loss
from setting import describe, wmt_like_corpus

from transduce.data.batch import to_device
from transduce.data.packing import fill
from transduce.data.plan import BatchPlan
from transduce.data.shards import TokenShards
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn import kernels
from transduce.nn.multi_head_attention import CrossAttention, SelfAttention
from transduce.runs.metrics import Metrics
from transduce.runs.recipe import Recipe, load_recipe
from transduce.tasks.translate import Translate
from transduce.text.tokenizer import BOS, EOS, PAD
from transduce.training.learner import Learner
from transduce.training.steps import Steps

V, BATCH_TOKENS, MAX_LENGTH, PAIRS, SEED, LOG_EVERY = 32_768, 25_600, 120, 400_000, 1, 50
POOL_BATCHES = 64
GPU = torch.device("cuda")


def main() -> None:
    """Check, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=["base", "big"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50, help="of each system in each round")
    parser.add_argument("--alone", action="store_true", help="leave the peer out")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    setting = describe() | {
        "vocabulary": V, "batch tokens": BATCH_TOKENS, "pairs": PAIRS, "seed": SEED,
        "rounds": options.rounds, "steps a round": options.steps, "8192-cubed bf16 product, TFLOP/s": ceiling(),
    }  # fmt: skip
    for key, value in setting.items():
        print(f"{key}: {value}")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        shards = wmt_like_corpus(Path(folder) / "corpus", PAIRS, V, MAX_LENGTH, SEED)
        for preset in options.presets:
            sets = [f"train.batch_tokens={BATCH_TOKENS}", f"data.max_length={MAX_LENGTH}", f"train.seed={SEED}"]
            recipe = load_recipe(None, preset, {}, sets)
            print(f"\n{preset}: {recipe.model}")
            results[preset] = {"agreement": agreement(recipe, shards)}
            results[preset] |= measure(recipe, shards, Path(folder), options.rounds, options.steps, options.alone)
            torch.cuda.empty_cache()
            if options.out:
                options.out.write_text(json.dumps({"setting": setting, "results": results}, indent=1) + "\n")


def ceiling() -> float:
    """What the GPU's matrix products reach, on a large square one."""
    a, b = (torch.randn(8192, 8192, device=GPU, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(20):
        a @ b
    end.record()
    torch.cuda.synchronize()
    return round(20 * 2 * 8192**3 / start.elapsed_time(end) / 1e9)


def agreement(recipe: Recipe, shards: TokenShards) -> dict[str, float]:
    """How far loss and gradients in bfloat16 are from the `reference` engine in float32, on one batch, no dropout."""
    plan = BatchPlan(shards, BATCH_TOKENS // 4, SEED)
    batch = to_device(
        fill(Translate().pack(shards.pairs(plan.batch(0))), BATCH_TOKENS // 4, plan.max_pairs, MAX_LENGTH + 1),
        GPU,
        MAX_LENGTH + 1,
    )
    torch.manual_seed(SEED)
    model = EncoderDecoder(replace(recipe.model, dropout=0.0), V).to(GPU)

    def computed(engine: str, *, half: bool, fused: bool) -> tuple[float, list[torch.Tensor]]:
        student = copy.deepcopy(model)
        for module in student.modules():
            if isinstance(module, SelfAttention | CrossAttention):
                module.engine = engine
        smoothing, optimizer = recipe.train.label_smoothing, torch.optim.Adam(student.parameters())
        learner = Learner(student, optimizer, label_smoothing=smoothing, clip_norm=0.0, half=half, capture=fused)
        with mock.patch.object(kernels, "fit", kernels.fit if fused else lambda _: False):
            sums = learner.gradients([batch])
        computing = learner._worker.parameters()
        gradients = [weight.grad.float() / batch.count for weight in computing if weight.grad is not None]
        return sums[0].item() / batch.count, gradients

    truth, true_gradients = computed("reference", half=False, fused=False)
    plain, plain_gradients = computed("padded", half=True, fused=False)
    ours, our_gradients = computed("auto", half=True, fused=True)

    def distance(gradients: list[torch.Tensor]) -> dict[str, float]:
        each = [
            (ours - true).norm().item() / max(true.norm().item(), 1e-12)
            for ours, true in zip(gradients, true_gradients, strict=True)
            if true.norm() > 1e-6  # the bias of keys has no gradient: softmax does not see it
        ]
        flat, true = (torch.cat([g.flatten() for g in x]) for x in (gradients, true_gradients))
        return {"all": ((flat - true).norm() / true.norm()).item(), "median tensor": statistics.median(each)}

    found = {
        "reference loss, float32": truth,
        "our loss": ours,
        "loss of torch's own operations in bfloat16": plain,
        **{f"our gradients, relative error, {k}": v for k, v in distance(our_gradients).items()},
        **{f"gradients of those, relative error, {k}": v for k, v in distance(plain_gradients).items()},
    }
    for name, value in found.items():
        print(f"  {name}: {value:.5g}")
    return found


def measure(
    recipe: Recipe, shards: TokenShards, folder: Path, rounds: int, steps: int, alone: bool
) -> dict[str, float]:
    """Tokens per second of both, in turns, and how much faster ours is."""
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    ours = our_steps(recipe, shards, folder / "metrics.jsonl")
    systems: dict[str, Iterator[int]] = {"transduce": ours}
    next(ours)
    torch.cuda.synchronize()
    facts = {"first step, s": time.perf_counter() - began}
    for _ in range(20):  # the pool of batches and the memory settle
        next(ours)
    torch.cuda.synchronize()
    facts["peak memory, GB"] = torch.cuda.max_memory_allocated() / 1e9
    if not alone:
        began = time.perf_counter()
        systems["Hugging Face Marian"] = peer_steps(recipe, shards)
        for _ in range(12):
            next(systems["Hugging Face Marian"])
        torch.cuda.synchronize()
        facts["Marian: first 12 steps, s"] = time.perf_counter() - began

    speeds: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, system in systems.items():
            began = time.perf_counter()
            tokens = sum(next(system) for _ in range(steps))
            torch.cuda.synchronize()
            speeds[name].append(tokens / (time.perf_counter() - began))
    for name, values in speeds.items():
        facts[f"{name}, real target tokens/s"] = statistics.median(values)
        facts[f"{name}, lowest and highest"] = [round(min(values)), round(max(values))]
    if not alone:
        ratios = [a / b for a, b in zip(speeds["transduce"], speeds["Hugging Face Marian"], strict=True)]
        facts["ours is faster by"] = statistics.median(ratios)
    flops = flops_per_token(recipe)
    facts["model FLOPs per target token (and its source token)"] = flops
    facts["TFLOP/s of the model"] = flops * facts["transduce, real target tokens/s"] / 1e12
    for name, value in facts.items():
        print(f"  {name}: {value if isinstance(value, list) else f'{value:,.4g}' if value < 1000 else f'{value:,.0f}'}")
    return facts


def flops_per_token(recipe: Recipe) -> float:
    """Forward and backward, matrix products alone: 6 for each weight that meets a token, on both sides."""
    m = recipe.model
    attention, feed_forward = 4 * m.d_model**2, 2 * m.d_model * m.d_ff
    encoder = m.encoder_layers * (attention + feed_forward)
    decoder = m.decoder_layers * (2 * attention + feed_forward)
    return 6.0 * (encoder + decoder + V * m.d_model)


def our_steps(recipe: Recipe, shards: TokenShards, metrics_file: Path) -> Iterator[int]:
    """Train; yields the target tokens of each step."""
    torch.manual_seed(SEED)
    model = EncoderDecoder(recipe.model, V).to(GPU)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    plan = BatchPlan(shards, BATCH_TOKENS, SEED)
    metrics = Metrics(metrics_file)
    metrics_file.unlink(missing_ok=True)
    no_tokenizer: Any = None  # the corpus is random tokens
    with Steps(recipe, plan, no_tokenizer, model, optimizer, print) as steps:
        before = 0
        for step in count():
            rate, norm = steps.take(step)
            tokens, before = steps.meter.tokens - before, steps.meter.tokens
            if (step + 1) % LOG_EVERY == 0:
                metrics.add("train", step=step + 1, **steps.meter.read(), learning_rate=rate, grad_norm=norm.item())
                before = 0
            yield tokens


def peer_steps(recipe: Recipe, shards: TokenShards) -> Iterator[int]:
    """Train Marian; yields the target tokens of each step."""
    torch.manual_seed(SEED)
    peer = HuggingFaceMarian(recipe.model, V).to(GPU).train()
    optimizer = torch.optim.Adam(peer.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    loss = compiled_loss(peer, recipe.train.label_smoothing)
    batches = peer_batches(shards, 128)
    real = sum(batch.count for batch in batches) / sum(batch.labels_BT.numel() for batch in batches)
    print(f"  Marian's batches hold {real:.1%} real target tokens")
    for step in count():
        batch = batches[step % len(batches)]
        with torch.autocast("cuda", torch.bfloat16):
            value = loss(batch)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield batch.count


def compiled_loss(peer: HuggingFaceMarian, smoothing: float) -> Callable[[PaddedBatch], torch.Tensor]:
    """The layers, and the projection with the loss, compiled for any shape.

    Compiled as one graph for any shape, it had not taken its first step after five minutes.
    """
    for layer in peer.layers:
        layer.compile(dynamic=True, fullgraph=True)

    @torch.compile(dynamic=True, fullgraph=True)
    def head(hidden_BTD: torch.Tensor, labels_BT: torch.Tensor) -> torch.Tensor:
        return peer_loss(peer.project(hidden_BTD), labels_BT, smoothing)

    return lambda batch: head(peer.hidden(batch), batch.labels_BT)


def peer_batches(shards: TokenShards, batches: int) -> list[PaddedBatch]:
    """Padded batches of at most BATCH_TOKENS cells a side, from pools sorted by length."""
    random = np.random.default_rng(SEED)
    order = random.permutation(len(shards))
    found: list[PaddedBatch] = []
    pool_pairs = int(POOL_BATCHES * BATCH_TOKENS / (max(shards.mean_lengths) + 1))
    for start in range(0, len(order), pool_pairs):
        pairs = shards.pairs(order[start : start + pool_pairs])
        pairs.sort(key=lambda pair: (max(map(len, pair)), len(pair[0])))
        pool: list[list[Any]] = [[]]
        widest = 0
        for pair in pairs:
            widest = max(widest, len(pair[0]) + 1, len(pair[1]) + 1)
            if (len(pool[-1]) + 1) * widest > BATCH_TOKENS:
                pool.append([])
                widest = max(len(pair[0]), len(pair[1])) + 1
            pool[-1].append(pair)
        found += [_padded(pool[number]) for number in random.permutation(len(pool) - 1)]
        if len(found) >= batches:
            break
    return found[:batches]


def _padded(pairs: list[Any]) -> PaddedBatch:
    def grid(sentences: list[list[int]]) -> torch.Tensor:
        cells = np.full((len(sentences), max(map(len, sentences))), PAD, dtype=np.int64)
        for row, sentence in zip(cells, sentences, strict=True):
            row[: len(sentence)] = sentence
        return torch.from_numpy(cells).to(GPU)

    targets = [list(tgt) for _, tgt in pairs]
    return PaddedBatch(
        grid([[*src, EOS] for src, _ in pairs]),
        grid([[BOS, *tgt] for tgt in targets]),
        grid([[*tgt, EOS] for tgt in targets]),
        sum(len(tgt) + 1 for tgt in targets),
    )


if __name__ == "__main__":
    main()
