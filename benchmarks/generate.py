"""Greedy generation on a GPU: GPT-2 with 124 million parameters, ours and transformers' `generate`, interleaved.

    python benchmarks/generate.py [--rounds 3] [--out figures.json]

Both have the same random weights and prompts of 32 random tokens, and generate exactly 128 tokens for each, in float16.
Ours is the gpu engine, which `Generator.generate(temperature=0)` uses; prompts take part in its time. Only new tokens
count. The peer runs as it is by default, and with a static cache, for which it compiles itself with CUDA graphs.
"""

import gc
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from setting import SEED, make_parser, print_setting, write_results

from transduce.fast.gpu.engine import GpuEngine
from transduce.interop.family import convert
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.registry import create_model
from transduce.search.engine import Job, search_all
from transduce.search.options import SearchConfig

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PROMPT, NEW = 32, 128


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, nargs="*", default=[1, 64, 256])
    parser.add_argument("--no-peers", action="store_true", help="leave out the peer")
    options = parser.parse_args()
    if DEVICE.type == "cpu" and not options.smoke:
        parser.error("there is no CUDA GPU; --smoke runs the same steps on the CPU")
    vocabulary, sizes, new = 50_257, {"layers": 12, "d_model": 768, "d_ff": 3072, "num_heads": 12}, NEW
    if options.smoke:
        vocabulary, sizes, new = 50, {"layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}, 2
        options.rounds, options.prompts = 1, [2]
    setting = print_setting(**sizes, vocabulary=vocabulary, prompt=PROMPT, new_tokens=new, seed=SEED)
    peer = None
    if find_spec("transformers") and not options.no_peers:
        peer = make_peer(sizes, vocabulary)
    engine = GpuEngine(make_ours(sizes, vocabulary, peer), torch.float16 if DEVICE.type == "cuda" else torch.float32)
    results: dict[str, Any] = {}
    for count in options.prompts:
        prompts = torch.randint(4, vocabulary, (count, PROMPT), generator=torch.Generator().manual_seed(SEED))
        systems = {"transduce": our_generation(engine, prompts, new)}
        if peer is not None:
            systems["transformers"] = peer_generation(peer, prompts, new)
            if not options.smoke:
                systems["transformers, compiled"] = peer_generation(peer, prompts, new, cache_implementation="static")
        speeds = measure(systems, count * new, options.rounds)
        name = "1 prompt" if count == 1 else f"{count} prompts"
        ratios = {f"ours / {peer}": speeds["transduce"] / speeds[peer] for peer in list(systems)[1:]}
        results[name] = {**speeds, **ratios}
        print(f"{name}: " + ", ".join(f"{system} {speed:,.0f} new tokens/s" for system, speed in speeds.items()))
    write_results(options, setting, results)


def measure(systems: dict[str, Callable[[], None]], tokens: int, rounds: int) -> dict[str, float]:
    """The median throughput of each system over the rounds, after a warm-up."""
    for generate in systems.values():
        for _ in range(3):  # the second call still compiles
            generate()
    gc.freeze()  # as `translate` does
    speeds: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, generate in systems.items():
            start = time.perf_counter()
            generate()
            speeds[name].append(tokens / (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in speeds.items()}


def make_ours(sizes: dict[str, int], vocabulary: int, peer: Any) -> DecoderOnly:
    """Our model, with the weights of the peer if there is one."""
    torch.manual_seed(SEED)
    config: Any = DecoderOnlyConfig(
        **sizes, positions="learned", max_positions=1024, norm="pre", activation="gelu_tanh", embedding="plain"
    )
    weights = {}
    if peer is not None:
        config, weights = convert(peer.config.to_dict(), {n: x.float().cpu() for n, x in peer.state_dict().items()})
    model = create_model(config, vocabulary)
    assert isinstance(model, DecoderOnly)
    if weights:
        model.load_state_dict(weights)
    return model.to(DEVICE).eval()


def our_generation(engine: GpuEngine, prompts: torch.Tensor, new: int) -> Callable[[], None]:
    """A function that generates with the gpu engine."""
    jobs = [Job(prompt, prompt) for prompt in prompts.tolist()]
    options = SearchConfig(beam=1, length_penalty=0.0, min_length=PROMPT + new, max_extra=new)

    def generate() -> None:
        found = search_all(engine, jobs, options)
        assert all(len(best.tokens) == PROMPT + new for best, *_ in found)

    return generate


def make_peer(sizes: dict[str, int], vocabulary: int) -> Any:
    """The GPT-2 of transformers, with random weights in half precision."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(SEED)
    config = GPT2Config(
        vocab_size=vocabulary, n_embd=sizes["d_model"], n_layer=sizes["layers"], n_head=sizes["num_heads"],
        n_inner=sizes["d_ff"], bos_token_id=2, eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    dtype = torch.float16 if DEVICE.type == "cuda" else torch.float32
    return GPT2LMHeadModel(config).to(DEVICE, dtype).eval()


def peer_generation(peer: Any, prompts: torch.Tensor, new: int, **options: Any) -> Callable[[], None]:
    """A function that generates with transformers."""
    ids = prompts.to(DEVICE)

    @torch.inference_mode()
    def generate() -> None:
        mask = torch.ones_like(ids)
        length = {"max_new_tokens": new, "min_new_tokens": new}
        found = peer.generate(ids, attention_mask=mask, do_sample=False, **length, **options)
        assert found.shape[1] == PROMPT + new
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()

    return generate


if __name__ == "__main__":
    main()
