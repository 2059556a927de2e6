"""Greedy generation on a CPU: one prompt, ours with 8-bit integers beside llama.cpp with Q8_0 weights, interleaved.

    python benchmarks/generate_cpu.py --model smollm2 --gguf smollm2-q8_0.gguf [--threads 2] [--out figures.json]

`--model` is a language model folder (`transduce import`), `--gguf` the same model for llama.cpp, which takes part if
the package llama-cpp-python is installed. Without them, ours has random weights in the sizes of SmolLM2-135M.

Every system gets the same number of prompt tokens and generates exactly `--new` tokens. The time is that from token ids
to token ids, with the prompt; only new tokens count. A token needs all weights once, so memory bandwidth is a limit for
one prompt: the share that a system reaches is its bytes of weights times its tokens/s, over the measured bandwidth.
"""

import ctypes
import os
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from setting import SEED, make_parser, print_setting, write_results

from transduce.data.batch import Stream
from transduce.fast.choose import pick_decoder
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from transduce.models.folder import load_model
from transduce.nn.segments import pack_tokens
from transduce.search.decoder import Decoder
from transduce.search.sampling import greedy_choice, roll_out_steps
from transduce.tokenizers.tokenizer import BOS

Generate = Callable[[], int]
"""Generates once; returns the number of new tokens."""
Clock = Callable[[], float]
SMOLLM2 = DecoderOnlyConfig(
    layers=30, d_model=576, d_ff=1536, num_heads=9, kv_heads=3, norm="pre", norm_type="rms", positions="rotary",
    activation="swiglu", bias=False, embedding="plain", dropout=0.0,
)  # fmt: skip
SMOKE = DecoderOnlyConfig(layers=1, d_model=16, d_ff=32, num_heads=2, norm="pre", positions="rotary", dropout=0.0)


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path, help="a language model folder")
    parser.add_argument("--gguf", type=Path, help="the same model in Q8_0, for llama.cpp")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--prompt", type=int, default=8, help="tokens of the prompt")
    parser.add_argument("--new", type=int, default=128, help="new tokens")
    parser.add_argument("--prompts", type=int, default=1, help="prompts at once; llama.cpp takes part only with one")
    parser.add_argument("--cpu-time", action="store_true", help="measure CPU time: for one thread of a busy machine")
    parser.add_argument("--plain", action="store_true", help="measure the engine plain as well")
    options = parser.parse_args()
    if options.cpu_time and options.threads > 1:
        parser.error("--cpu-time needs --threads 1")
    clock = time.process_time if options.cpu_time else time.perf_counter
    if options.smoke:
        options.rounds, options.new, options.plain = 1, 4, True
    torch.set_num_threads(options.threads)
    model = make_model(options.model, smoke=options.smoke)
    bandwidth = measure_bandwidth(clock)
    setting = print_setting(
        model=options.model or "random weights", vocabulary=model.vocab_size, prompts=options.prompts,
        prompt=options.prompt, new_tokens=options.new, threads=options.threads, rounds=options.rounds, seed=SEED,
        time="CPU" if options.cpu_time else "wall", bandwidth=f"{bandwidth / 1e9:.1f} GB/s",
    )  # fmt: skip
    decoder = pick_decoder("native", model, options.threads)
    systems = {"native": (ours(decoder, model, options), matrix_elements(model))}
    if options.plain:
        systems["plain"] = ours(model, model, options), 4 * matrix_elements(model)
    if options.gguf and options.prompts == 1 and find_spec("llama_cpp"):
        generate, size = llama_cpp(options.gguf, options)
        systems["llama.cpp Q8_0"] = generate, size
    speeds = measure({name: generate for name, (generate, _) in systems.items()}, options.rounds, clock)
    results: dict[str, Any] = {}
    print("\nnew tokens/s, median (lowest to highest)")
    for name, values in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(speeds["native"], values, strict=True))
        speed = statistics.median(values)
        share = speed / options.prompts * systems[name][1] / bandwidth
        results[name] = {
            "new tokens/s": statistics.median(values),
            "% of the bandwidth": 100 * share,
            "ours / it": ratio,
        }
        print(
            f"  {name:16} {speed:>8,.1f} ({min(values):,.1f} to {max(values):,.1f})"
            f"  ours / it {ratio:.2f}  weights: {systems[name][1] / 1e6:,.0f} MB, {share:.0%} of the bandwidth"
        )
    write_results(options, setting, results)


def make_model(folder: Path | None, *, smoke: bool) -> DecoderOnly:
    """The model of a folder, or one with random weights."""
    if folder:
        model = load_model(folder, "cpu").model
        assert isinstance(model, DecoderOnly), f"{folder} is no language model"
        return model.eval()
    torch.manual_seed(SEED)
    return DecoderOnly(SMOKE, 450).eval() if smoke else DecoderOnly(SMOLLM2, 49_152).eval()


def matrix_elements(model: DecoderOnly) -> int:
    """The weights of matrices that a new token needs; in 8 bits, that many bytes."""
    layers = sum(x.numel() for x in model.decoder.parameters() if x.dim() == 2)
    return layers + model.output_weight_VD.numel()


def measure_bandwidth(clock: Clock) -> float:
    """Bytes per second that torch's threads read from memory, at best."""
    x, seconds = torch.ones(1 << 26), []
    for _ in range(7):
        start = clock()
        x.sum()
        seconds.append(clock() - start)
    return 4 * len(x) / min(seconds)


def ours(decoder: Decoder, model: DecoderOnly, options: Any) -> Generate:
    """Generation with one of our engines, as `Generator` runs it."""
    generator = torch.Generator().manual_seed(SEED)
    shape = options.prompts, options.prompt - 1
    prompts = torch.randint(4, model.vocab_size, shape, generator=generator).tolist()

    def generate() -> int:
        source = Stream(*pack_tokens([[BOS, *prompt[:-1]] for prompt in prompts], torch.device("cpu")))
        limits, first = [options.new] * len(prompts), [prompt[-1] for prompt in prompts]
        steps = roll_out_steps(decoder, source, limits, greedy_choice, first=first)
        count = 0
        for number, step in enumerate(steps, start=1):
            with torch.inference_mode():
                step.finished_BW.fill_(number == options.new)  # an end marker does not end the output
            count += step.token_BW.numel()
        return count

    return generate


def llama_cpp(path: Path, options: Any) -> tuple[Generate, int]:
    """Generation with llama.cpp, and the bytes of its weights; its functions are called without a layer of Python."""
    import llama_cpp as llama

    quiet = llama.llama_log_callback(lambda *_: None)
    llama.llama_log_set(quiet, ctypes.c_void_p(0))
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
    settings = llama.llama_context_default_params()
    settings.n_ctx, settings.n_batch = 512, 512
    settings.n_threads = settings.n_threads_batch = options.threads
    context = llama.llama_init_from_model(model, settings)
    sampler = llama.llama_sampler_init_greedy()
    size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    ids = torch.randint(4, size, (options.prompt,), generator=torch.Generator().manual_seed(SEED)).tolist()

    def generate() -> int:
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        tokens = (llama.llama_token * len(ids))(*ids)
        for _ in range(options.new):
            assert llama.llama_decode(context, llama.llama_batch_get_one(tokens, len(tokens))) == 0
            tokens = (llama.llama_token * 1)(llama.llama_sampler_sample(sampler, context, -1))
        assert quiet
        return int(options.new)

    return generate, llama.llama_model_size(model)


def measure(systems: dict[str, Generate], rounds: int, clock: Clock) -> dict[str, list[float]]:
    """New tokens per second of each system in every round, after a warm-up."""
    speeds: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(rounds + 1):
        for name, generate in systems.items():
            start = clock()
            count = generate()
            if turn:
                speeds[name].append(count / (clock() - start))
    return speeds


if __name__ == "__main__":
    main()
