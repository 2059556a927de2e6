"""Random and hostile cases for the C engine, for a build with sanitizers.

`python random_native_cases.py SEED FIRST COUNT [--concurrent]` runs the cases FIRST to FIRST + COUNT - 1 of a seed, and
writes the number of each to stderr before it starts, so that the last one is that of a finding. Even cases are
translation: sizes, ids, limits, prefixes, shortlists, separate vocabularies, options, dropped jobs, weights that are
not finite or stored in 8 bits, interleaved sessions, and outputs that are read. Odd cases are language models: styles,
sizes, prompts, interleaved generations whose texts are copied and dropped. What is refused is counted, and the case
continues. Most sizes are small; a few cross the borders of the blocks in the C code: panels of 16 outputs, 64 inputs,
512 logits, 128 tokens of sources, 256 of prompts, 64 positions of an output, heads of 64 dimensions. One case in eight
uses several threads of the engine. With `--concurrent` one in four does, and the sessions of the others run in several
Python threads at the same time, each with one thread of the engine.
"""

import math
import os
import random
import sys
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from engines import raw_tensor
from helpers import FIRST_WORD
from numpy_memory import allocate_by_malloc
from random_language_models import draw_settings

from transduce.data.batch import Stream
from transduce.errors import ConfigError
from transduce.fast.native.engine import NativeEngine, NativeSession
from transduce.fast.native.language_model import NativeLanguageModel
from transduce.fast.native.library import load_library
from transduce.fast.native.shortlist import Shortlist
from transduce.fast.native.weights import SpareMemory, weight_shapes
from transduce.models import weights_file
from transduce.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transduce.models.decoder_only import DecoderOnly
from transduce.models.folder import ModelFolder
from transduce.models.forced_decoding import Pairs
from transduce.models.weights_file import Array, Block, Int8Matrix, Shapes, WeightsFile
from transduce.nn.kinds import PositionKind
from transduce.nn.segments import pack_tokens
from transduce.search.engine import Job
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import EOS

CPU = torch.device("cpu")
Floats = npt.NDArray[np.float32]
NOISE = np.random.default_rng(0).standard_normal(2**18, np.float32)
"""What weights are copied from: to draw them would take longer than the rest of a case."""
INTEGERS = np.random.default_rng(0).integers(-128, 128, 2**18, np.int8)
"""The same for weights that are stored in 8 bits."""
STEPS = (2, 3, 5, 9)
"""Numbers of steps of a session or of generations."""


class ExactMemory(SpareMemory):
    """Blocks of exactly the size that is needed, none of which is used twice, so that a sanitizer sees their ends."""

    def take(self, floats: int) -> Block:
        return Block(4 * floats)

    def give_back(self, block: Block) -> None:
        pass


class DrawnWeights(dict[str, Array]):
    """Weights in memory in the place of `WeightsFile`; making torch modules would take most of the time of a case."""

    def require_shapes(self, expected: Shapes) -> None:
        assert {name: weight.shape for name, weight in self.items()} == expected


@dataclass
class DrawnLanguageModel:
    """What `NativeLanguageModel` uses of a `DecoderOnly`."""

    config: DecoderOnlyConfig
    weights: dict[str, Floats]

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(weight) for name, weight in self.weights.items()}


T = TypeVar("T")


def mostly(draw: random.Random, usual: Sequence[T], seldom: Sequence[T]) -> T:
    """One of the usual values or, in one draw of twenty, of the others."""
    return draw.choice(seldom if draw.random() < 0.05 else usual)


def draw_vocabulary(draw: random.Random) -> int:
    return mostly(draw, [5, 8, 16, 17, 33], [64, 200, 512, 530])


def part_of(draw: random.Random, numbers: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A random part of some numbers, in this shape; a view."""
    size = math.prod(shape)
    start = int(draw.random() * (len(numbers) - size))
    return numbers[start : start + size].reshape(shape)


def draw_weights(draw: random.Random, shapes: Shapes) -> dict[str, Floats]:
    """Random weights; in some models a few are not finite, or so large that products overflow."""
    weights = {}
    for name, shape in shapes.items():
        weight = np.float32(0.3) * part_of(draw, NOISE, shape)
        weights[name] = weight + np.float32(1) if name.endswith("norm.weight") else weight
    if draw.random() < 0.2:
        for name in draw.sample(list(weights), 2):
            weights[name].reshape(-1)[draw.randrange(weights[name].size)] = draw.choice([np.nan, np.inf, -1e38])
    return weights


def raw_weights(weights: dict[str, Floats]) -> dict[str, Array]:
    return {name: raw_tensor(weight) for name, weight in weights.items()}


def in_8_bits(draw: random.Random, weights: dict[str, Floats]) -> dict[str, Array]:
    """The matrices as integers, some of which `quantise_row` would not have made."""
    return raw_weights(weights) | {
        name: Int8Matrix(raw_tensor(part_of(draw, INTEGERS, weight.shape)), raw_tensor(abs(weight[:, 0])))
        for name, weight in weights.items()
        if name.endswith((".weight", "weight_VD")) and weight.ndim == 2
    }


def language_model_shapes(config: DecoderOnlyConfig, vocab_size: int) -> Shapes:
    """The shapes of all weights of a language model."""
    width, heads = config.d_model, config.heads
    inner = config.d_ff * (2 if config.activation in ("geglu", "swiglu") else 1)
    qkv = heads.num_heads * heads.d_k + heads.kv_heads * (heads.d_k + heads.d_v)
    shapes: Shapes = {"embedding.weight_VD": (vocab_size, width)}
    norms = ["embedding.norm"] * (config.embedding == "normalized") + ["decoder_norm"] * (config.norm == "pre")
    for number in range(config.layers):
        attention, feed_forward = f"decoder.{number}.self_attention", f"decoder.{number}.feed_forward"
        norms += [f"decoder.{number}.residuals.{index}.norm" for index in range(2)]
        for name, shape in {
            f"{attention}.qkv": (qkv, width),
            f"{attention}.out": (width, heads.num_heads * heads.d_v),
            f"{feed_forward}.inner": (inner, width),
            f"{feed_forward}.outer": (width, config.d_ff),
        }.items():
            shapes[f"{name}.weight"] = shape
            if config.bias:
                shapes[f"{name}.bias"] = shape[:1]
    for norm in norms:
        shapes[f"{norm}.weight"] = (width,)
        if config.norm_type == "layer":
            shapes[f"{norm}.bias"] = (width,)
    if config.positions == "learned":
        shapes["embedding.positions.table_TD"] = (config.max_positions, width)
    if not config.tie_output:
        shapes["output.weight_VD"] = (vocab_size, width)
    if config.output_bias:
        shapes["output.bias_V"] = (vocab_size,)
    return shapes


def random_engine(draw: random.Random, library: CDLL, threads: int) -> tuple[NativeEngine, int, int]:
    """An engine and the sizes of its vocabularies of source and target."""
    heads, width = draw.choice([1, 1, 2, 3]), mostly(draw, [1, 2, 4, 8], [12, 16, 32])
    source_vocab_size = draw.choice([None, None, draw_vocabulary(draw)])
    positions: PositionKind = draw.choice(["learned", "sinusoidal", "marian", "fairseq"])
    config = EncoderDecoderConfig(
        encoder_layers=draw.randint(1, 2),
        decoder_layers=draw.randint(1, 2),
        d_model=2 * heads * width,
        d_ff=mostly(draw, [1, 3, 16, 17], [50, 64, 65, 130]),
        num_heads=heads,
        norm=draw.choice(["pre", "post"]),
        activation=draw.choice(["relu", "swish", "gelu", "gelu_tanh"]),
        positions=positions,
        share_positions=positions != "learned" or draw.random() < 0.5,
        embedding=draw.choice(["scaled", "plain", "normalized"]),
        tie_output=draw.random() < 0.7,
        max_positions=draw.choice([2, 3, 5, 40]),
        output_bias=draw.random() < 0.3,
        source_vocab_size=source_vocab_size,
        decoder_tag=source_vocab_size is None and draw.random() < 0.5,
        decoder_cell=draw.choice(["attention", "ssru"]),
    )
    vocab_size = draw_vocabulary(draw)
    source_size = config.source_vocab_size or vocab_size
    drawn = draw_weights(draw, weight_shapes(config, vocab_size))
    weights = in_8_bits(draw, drawn) if draw.random() < 0.3 else raw_weights(drawn)
    tokenizer: Any = SimpleNamespace(vocab_size=source_size, target=SimpleNamespace(vocab_size=vocab_size))
    model = ModelFolder(Path(), config, tokenizer, {}, cast(WeightsFile, DrawnWeights(weights)))
    engine = NativeEngine(model, library, threads, batch_tokens=draw.choice([1, 64, 8192]))
    engine.shortlist = random_shortlist(draw, source_size, vocab_size, copies=config.source_vocab_size is None)
    engine.memory = ExactMemory()
    return engine, source_size, vocab_size


def random_language_model(draw: random.Random, library: CDLL, threads: int) -> tuple[NativeLanguageModel, int]:
    """A language model and the size of its vocabulary."""
    settings, vocab_size = draw_settings(draw), draw_vocabulary(draw)
    wide = {"d_model": draw.choice([64, 65]), "d_ff": draw.choice([64, 65, 130]), "d_k": 64, "d_v": 64}
    config = DecoderOnlyConfig(dropout=0.0, **(settings | mostly(draw, [{}], [wide])))
    model = DrawnLanguageModel(config, draw_weights(draw, language_model_shapes(config, vocab_size)))
    return NativeLanguageModel(cast(DecoderOnly, model), library, threads), vocab_size


def run_generations(draw: random.Random, native: NativeLanguageModel, vocab_size: int) -> int:
    """Start, step and reorder generations in turns; returns how often a text was too long for the model."""
    states: list[Any] = []
    refused = 0
    for _ in range(draw.choice(STEPS)):
        try:
            if not states or draw.random() < 0.2:
                lengths = [mostly(draw, [0, 1, 2, 2, 7, 7, 16], [30, 130, 300]) for _ in range(draw.randint(1, 4))]
                prompts = [draw.choices(range(vocab_size), k=length) for length in lengths]
                states.append(native.start(Stream(*pack_tokens(prompts, CPU))))
            number = draw.randrange(len(states))
            rows = len(states[number])
            token_R = torch.tensor(draw.choices(range(vocab_size), k=rows))
            step = draw.choice([native.step, native.greedy_step])
            states[number] = step(token_R, states[number])[-1]
            if draw.random() < 0.3:
                index = sorted(draw.choices(range(rows), k=draw.randint(1, 5)))
                states[number] = native.reorder(states[number], torch.tensor([index]))
        except ConfigError:
            refused += 1
    return refused


def random_search(draw: random.Random) -> SearchConfig:
    beam = mostly(draw, [1, 1, 2, 3, 4, 5], [16])
    return SearchConfig(
        beam=beam,
        nbest=draw.randint(1, beam),
        length_penalty=draw.choice([-10.0, 0.0, 0.6, 10.0]),
        max_extra=draw.choice([0, 1, 5, 20]),
        max_length=draw.choice([None, 1, 3]),
        min_length=draw.choice([0, 1, 7]),
        shortlist=draw.random() < 0.5,
    )


def random_shortlist(draw: random.Random, source_size: int, vocab_size: int, *, copies: bool) -> Shortlist:
    """Lists of different lengths, some of them empty: from a random token, every one or every few."""
    first = [EOS + int(draw.random() * (vocab_size - EOS)) for _ in range(source_size)]
    kinds = [(0, 1), (1, 1), (3, 1), (3, 2), (20, 1), (20, 7)]
    sizes = draw.choices(kinds, k=source_size)
    lists = [range(start, vocab_size, step)[:size] for start, (size, step) in zip(first, sizes, strict=True)]
    offsets = array("i", accumulate(map(len, lists), initial=0))
    return Shortlist(offsets, array("i", chain.from_iterable(lists)), copies)


def run_sessions(draw: random.Random, sessions: Sequence[NativeSession], sizes: tuple[int, int]) -> int:
    """Add, drop and step; one case in four runs until all jobs are finished. Returns how many steps were refused."""
    key, steps, refused = 0, draw.choice(STEPS), 0

    def step(session: NativeSession) -> int:
        try:
            if session.busy:
                session.step()
        except ConfigError:  # a job is too long for the model
            return 1
        return 0

    for _ in range(steps):
        session = draw.choice(sessions)
        if not session.busy or draw.random() < 0.4:
            jobs = []
            for _ in range(draw.randint(1, 4)):
                lengths = mostly(draw, [0, 1, 2, 7, 7, 16], [30, 70, 150]), draw.choice([0, 0, 0, 1, 4])
                tokens, prefix = (
                    draw.choices(range(FIRST_WORD, size), k=length) for size, length in zip(sizes, lengths, strict=True)
                )
                options = random_search(draw) if draw.random() < 0.3 else None
                terms = tuple(prefix) if draw.random() < 0.5 else ()
                jobs.append((key := key + 1, Job(tokens, prefix, terms=terms, options=options)))
            session.add(jobs)
        if draw.random() < 0.2:
            session.drop([draw.randint(1, key + 1) for _ in range(2)])
        refused += step(session)
    while steps == 2 and any(session.busy for session in sessions):
        refused += sum(map(step, sessions))
    return refused


def read(draw: random.Random, engine: NativeEngine, sizes: tuple[int, int]) -> int:
    """Read outputs of a few sentences; returns 1 if one is too long for the model."""
    pairs = [
        tuple(draw.choices(range(FIRST_WORD, size), k=mostly(draw, [0, 1, 2, 7, 16], [30, 70, 150])) for size in sizes)
        for _ in range(draw.randint(1, 4))
    ]
    try:
        engine.token_statistics(cast(Pairs, pairs))
    except ConfigError:
        return 1
    return 0


def run_case(draw: random.Random, library: CDLL, number: int, pool: ThreadPoolExecutor | None) -> int:
    """Run one case; returns how much of it was refused."""
    threads = draw.randint(2, 4) if draw.random() < (0.25 if pool else 0.125) else 1
    parts: list[Callable[[random.Random], int]]
    if number % 2:
        try:
            native, vocab_size = random_language_model(draw, library, threads)
        except ConfigError:
            return 1
        parts = [lambda draw: run_generations(draw, native, vocab_size)] * 2
    else:
        engine, *sizes = random_engine(draw, library, threads)
        sessions = [engine.start_session(random_search(draw)) for _ in range(2)]
        groups = [sessions] if pool is None else [[session] for session in sessions]
        parts = [lambda draw, group=group: run_sessions(draw, group, (sizes[0], sizes[1])) for group in groups]
        if draw.random() < 0.2:
            parts.insert(0, lambda draw: read(draw, engine, (sizes[0], sizes[1])))
    if pool is None:
        return parts[0](draw)
    return sum(pool.map(lambda part, seed: part(random.Random(seed)), parts, [draw.random() for _ in parts]))


def main() -> None:
    """Run cases; a sanitizer ends the process with its report."""
    seed, first, count = map(int, sys.argv[1:4])
    library = load_library()
    assert library, "the library could not be compiled"
    allocate_by_malloc()
    weights_file.new_memory = bytearray  # type: ignore[assignment]
    with ThreadPoolExecutor(2) as pool:
        refused = 0
        for number in range(first, first + count):
            os.write(2, f"case {number} of seed {seed}\n".encode())
            draw = random.Random(f"{seed} {number}")
            refused += run_case(draw, library, number, pool if "--concurrent" in sys.argv else None)
    print(f"{count} cases, {refused} refused")


if __name__ == "__main__":
    main()
