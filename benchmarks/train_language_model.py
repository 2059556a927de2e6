"""Training throughput of a language model on a GPU: ours and that of Hugging Face, same sizes, interleaved.

    python benchmarks/train_language_model.py [--style gpt2|llama] [--precision fp8] [--rounds 5] [--steps 20]
        [--out figures.json]

GPT-2 with 124 million parameters or a Llama of about that size (rotary positions, RMSNorm, SwiGLU, 12 heads of queries
share 4 of keys and values), windows of 1,024 random tokens that are already on the GPU, bfloat16, no dropout.
Ours is the learner of `transduce train`: gradients by a CUDA graph, then an update with the norm of the gradients. The
peer is transformers' model under autocast, compiled by torch.compile, with scaled dot-product attention and
fused AdamW, without the norm of the gradients.
"""

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from setting import SEED, make_parser, print_setting, write_results

from transduce.data.batch import to_device
from transduce.language_model.task import LanguageModel
from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.models.registry import create_model
from transduce.training.learner import Learner, make_optimizer
from transduce.training.train_config import TrainConfig

STYLES: dict[str, dict[str, Any]] = {
    "gpt2": {"positions": "learned", "activation": "gelu_tanh"},
    "llama": {"positions": "rotary", "activation": "swiglu", "norm_type": "rms", "bias": False, "tie_output": False},
}
"""The settings in which the styles differ."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCABULARY = 50_257


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--style", choices=STYLES, default="gpt2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps of each system in each round")
    parser.add_argument("--precision", choices=("auto", "fp8"), default="auto", help="of our training")
    parser.add_argument("--windows", type=int, default=32, help="windows in a batch")
    parser.add_argument("--no-peers", action="store_true", help="leave out the peer")
    parser.add_argument("--profile", action="store_true", help="print the kernels that take the most time")
    options = parser.parse_args()
    if DEVICE.type == "cpu" and not options.smoke:
        parser.error("there is no CUDA GPU; --smoke runs the same steps on the CPU")
    sizes = {"layers": 12, "d_model": 768, "d_ff": 3072, "num_heads": 12}
    length, vocabulary = 1024, VOCABULARY
    if options.smoke:
        sizes, length, vocabulary = {"layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}, 8, 100
        options.rounds, options.steps, options.windows = 1, 1, 2
    if options.style == "llama":
        sizes |= {"d_ff": sizes["d_ff"] * 2 // 3, "kv_heads": max(sizes["num_heads"] // 3, 1)}
    setting = print_setting(
        style=options.style,
        **sizes,
        vocabulary=vocabulary,
        length=length,
        windows=options.windows,
        precision=options.precision,
        seed=SEED,
    )
    systems = {"transduce": our_step(options.style, sizes, vocabulary, length, options.windows, options.precision)}
    if find_spec("transformers") and not options.no_peers:
        peer = make_peer(options.style, sizes, vocabulary, length).to(DEVICE).train()
        systems["transformers"] = peer_step(peer, vocabulary, length, options.windows, fast=not options.smoke)
    for step in systems.values():
        for _ in range(1 if options.smoke else 6):
            step()
    if options.profile:
        profile(systems["transduce"])
    speeds: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(options.rounds):
        for name, step in systems.items():
            speeds[name].append(options.windows * length / seconds_per_step(step, options.steps))
    figures: dict[str, Any] = {name: statistics.median(values) for name, values in speeds.items()}
    for name, values in speeds.items():
        print(f"{name}: {figures[name]:,.0f} tokens/s ({min(values):,.0f} to {max(values):,.0f})")
    if "transformers" in figures:
        figures["ours / transformers"] = figures["transduce"] / figures["transformers"]
        print(f"ours / transformers: {figures['ours / transformers']:.2f}")
    figures |= {f"{name}, all rounds": values for name, values in speeds.items()}
    write_results(options, setting, {f"{options.windows} windows of {length:,} tokens": figures})


def seconds_per_step(step: Callable[[], None], steps: int) -> float:
    """The mean time of a step."""
    synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return (time.perf_counter() - start) / steps


def our_step(
    style: str, sizes: dict[str, int], vocabulary: int, length: int, windows: int, precision: Any
) -> Callable[[], None]:
    """A function that takes one training step with our learner."""
    torch.manual_seed(SEED)
    config = DecoderOnlyConfig(
        **sizes, **STYLES[style], dropout=0.0, max_positions=length, norm="pre", embedding="plain"
    )
    model = create_model(config, vocabulary).to(DEVICE)
    task, train = LanguageModel(), TrainConfig(label_smoothing=0.0, precision=precision)
    learner = Learner(model, make_optimizer(model, train), task, train)
    ids = np.random.default_rng(SEED).integers(4, vocabulary, size=(windows, length + 1))
    packed = task.pack([(row,) for row in ids])
    batch = to_device(packed, DEVICE, length if learner.captures else None)
    number = 0

    def step() -> None:
        nonlocal number
        number += 1
        learner.compute(batch)
        learner.update(number, 1e-4, batch.count)

    return step


def make_peer(style: str, sizes: dict[str, int], vocabulary: int, length: int) -> Any:
    """The model of transformers with these sizes."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    common = {"vocab_size": vocabulary, "attn_implementation": "sdpa", "use_cache": False}
    if style == "llama":
        return LlamaForCausalLM(LlamaConfig(
            hidden_size=sizes["d_model"], intermediate_size=sizes["d_ff"], num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["num_heads"], num_key_value_heads=sizes["kv_heads"],
            max_position_embeddings=length, **common,
        ))  # fmt: skip
    return GPT2LMHeadModel(GPT2Config(
        n_positions=length, n_embd=sizes["d_model"], n_layer=sizes["layers"], n_head=sizes["num_heads"],
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common,
    ))  # fmt: skip


def peer_step(peer: Any, vocabulary: int, length: int, windows: int, *, fast: bool) -> Callable[[], None]:
    """A function that takes one training step with a model of transformers; compiled, if `fast`."""
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-4, fused=DEVICE.type == "cuda")
    ids = torch.randint(4, vocabulary, (windows, length), device=DEVICE)
    forward = torch.compile(peer) if fast else peer

    def step() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def profile(step: Callable[[], None]) -> None:
    """Print the kernels of some steps, slowest first."""
    with torch.profiler.profile() as profiler:
        for _ in range(5):
            step()
        synchronize()
    print(profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=30, max_name_column_width=70))


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
