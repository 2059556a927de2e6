"""Random and hostile cases for the C engine, for a build with sanitizers: `python random_native_cases.py SEED COUNT`.

Sizes, ids, limits, prefixes, options, dropped jobs, weights that are not finite, several threads, several sessions.
"""

import random
import sys

import torch
from helpers import FIRST_WORD, small_model

from transduce.engines.engine import Job
from transduce.engines.native.engine import NativeEngine, NativeSession
from transduce.engines.native.library import load_library
from transduce.errors import ConfigError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.search.options import SearchConfig


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
    if draw.random() < 0.2:  # not finite, or so large that products overflow
        for parameter in draw.sample(list(model.parameters()), 2):
            with torch.no_grad():
                parameter.view(-1)[draw.randrange(parameter.numel())] = draw.choice([torch.nan, torch.inf, -1e38])
    return model


def random_search(draw: random.Random) -> SearchConfig:
    beam = draw.choice([1, 2, 4, 16])
    return SearchConfig(
        beam=beam,
        nbest=draw.randint(1, beam),
        length_penalty=draw.choice([-10.0, 0.0, 0.6, 10.0]),
        max_extra=draw.choice([0, 1, 5, 20]),
        max_length=draw.choice([None, 1, 3]),
        min_length=draw.choice([0, 1, 7]),
    )


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
                jobs.append((key := key + 1, Job(tokens, prefix, options=options)))
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
        try:
            run_session(draw, [engine.start_session(random_search(draw)) for _ in range(2)], model.vocab_size)
        except ConfigError:
            refused += 1
    print(f"{count} cases, {refused} refused")


if __name__ == "__main__":
    main()
