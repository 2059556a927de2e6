"""Random and hostile cases for the C engine, for a build with sanitizers: `python random_native_cases.py SEED COUNT`.

Translation: sizes, ids, limits, prefixes, shortlists, options, dropped jobs, weights that are not finite, several
threads and interleaved sessions. Language models: styles, sizes, prompts, interleaved generations whose texts are
copied and dropped.
"""

import random
import sys
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from helpers import FIRST_WORD, small_language_model, small_model
from random_language_models import draw_settings
from torch import nn

from transduce.data.batch import Stream
from transduce.engines.engine import Job
from transduce.engines.native.engine import NativeEngine, NativeSession
from transduce.engines.native.language_model import NativeLanguageModel
from transduce.engines.native.library import load_library
from transduce.errors import ConfigError
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.shortlist import Shortlist
from transduce.nn.segments import pack_tokens
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import EOS


def random_model(draw: random.Random) -> EncoderDecoder:
    heads, width = draw.choice([1, 2, 3, 4]), draw.choice([1, 2, 4, 8, 12])
    model = small_model(
        seed=draw.randrange(1000),
        vocab_size=draw.choice([5, 8, 17, 64, 200]),
        encoder_layers=draw.randint(1, 2),
        decoder_layers=draw.randint(1, 2),
        d_model=2 * heads * width,
        d_ff=draw.choice([1, 3, 16, 50]),
        num_heads=heads,
        norm=draw.choice(["pre", "post"]),
        positions=draw.choice(["learned", "sinusoidal"]),
        max_positions=draw.choice([1, 2, 5, 40]),
    )
    damage(draw, model)
    return model


def damage(draw: random.Random, model: nn.Module) -> None:
    """Make some weights of some models not finite, or so large that products overflow."""
    if draw.random() < 0.2:
        for parameter in draw.sample(list(model.parameters()), 2):
            with torch.no_grad():
                parameter.view(-1)[draw.randrange(parameter.numel())] = draw.choice([torch.nan, torch.inf, -1e38])


def random_language_model(draw: random.Random) -> DecoderOnly:
    model = small_language_model(draw.randrange(1000), draw.choice([5, 8, 17, 64, 200]), **draw_settings(draw))
    damage(draw, model)
    return model


def run_generations(draw: random.Random, native: NativeLanguageModel, vocab_size: int) -> None:
    """Start, step and reorder generations in turns; texts that are too long for the model are refused."""
    states: list[Any] = []
    for _ in range(60):
        if not states or draw.random() < 0.1:
            lengths = [draw.choice([0, 1, 2, 7, 30, 300]) for _ in range(draw.randint(1, 5))]
            prompts = [[draw.randrange(vocab_size) for _ in range(length)] for length in lengths]
            states.append(native.start(Stream(*pack_tokens(prompts, torch.device("cpu")))))
        number = draw.randrange(len(states))
        rows = len(states[number])
        token_R = torch.tensor([draw.randrange(vocab_size) for _ in range(rows)])
        step = draw.choice([native.step, native.greedy_step])
        states[number] = step(token_R, states[number])[-1]
        if draw.random() < 0.3:
            index = sorted(draw.choices(range(rows), k=draw.randint(1, 5)))
            states[number] = native.reorder(states[number], torch.tensor([index]))


def random_search(draw: random.Random) -> SearchConfig:
    beam = draw.choice([1, 2, 4, 16])
    return SearchConfig(
        beam=beam,
        nbest=draw.randint(1, beam),
        length_penalty=draw.choice([-10.0, 0.0, 0.6, 10.0]),
        max_extra=draw.choice([0, 1, 5, 20]),
        max_length=draw.choice([None, 1, 3]),
        min_length=draw.choice([0, 1, 7]),
        shortlist=draw.random() < 0.5,
    )


def random_shortlist(draw: random.Random, vocab_size: int) -> Shortlist:
    """Lists of different lengths, some of them empty."""
    sizes = [min(draw.choice([0, 1, 3, 20]), vocab_size - EOS) for _ in range(vocab_size)]
    candidates = [token for size in sizes for token in sorted(draw.sample(range(EOS, vocab_size), size))]
    return Shortlist(np.array([0, *accumulate(sizes)], np.int32), np.array(candidates, np.int32))


def run_session(draw: random.Random, sessions: list[NativeSession], vocab_size: int) -> None:
    """Add, drop and step until all jobs are finished; jobs that are too long for the model are refused."""
    key = 0
    for _ in range(60):
        session = draw.choice(sessions)
        if draw.random() < 0.4:
            jobs = []
            for _ in range(draw.randint(1, 6)):
                lengths = draw.choice([0, 1, 2, 7, 30]), draw.choice([0, 0, 0, 1, 4])
                tokens, prefix = ([draw.randrange(FIRST_WORD, vocab_size) for _ in range(n)] for n in lengths)
                options = draw.choice([None, random_search(draw)])
                terms = tuple(prefix) if draw.random() < 0.5 else ()
                jobs.append((key := key + 1, Job(tokens, prefix, terms=terms, options=options)))
            session.add(jobs)
        if draw.random() < 0.2:
            session.drop([draw.randint(1, key + 1) for _ in range(3)])
        if session.busy:
            session.step()
    for session in sessions:
        while session.busy:
            session.step()


def main() -> None:
    """Run cases; a sanitizer ends the process with its report."""
    seed, count = map(int, sys.argv[1:])
    library = load_library()
    assert library, "the library could not be compiled"
    refused = 0
    for case in range(count):
        draw = random.Random(f"{seed} {case}")
        model = random_model(draw)
        engine = NativeEngine(model, library, draw.randint(1, 4), batch_tokens=draw.choice([1, 64, 8192]))
        engine.shortlist = random_shortlist(draw, model.vocab_size)
        language_model = random_language_model(draw)
        try:
            native = NativeLanguageModel(language_model, library, draw.randint(1, 4))
            run_generations(draw, native, language_model.vocab_size)
        except ConfigError:
            refused += 1
        try:
            run_session(draw, [engine.start_session(random_search(draw)) for _ in range(2)], model.vocab_size)
        except ConfigError:
            refused += 1
    print(f"{count} cases, {refused} refused")


if __name__ == "__main__":
    main()
