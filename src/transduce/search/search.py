"""Beam search, greedy search or sampling, as a SearchConfig selects."""

from collections.abc import Sequence
from typing import Any

import torch

from transduce.search.beam import beam_search_steps
from transduce.search.constraint import Constraint, SymbolRule
from transduce.search.decoder import Decoder, Hypothesis, SearchSteps, last_result
from transduce.search.options import SearchConfig
from transduce.search.sampling import greedy_choice, roll_out_search, sampler


def search(
    decoder: Decoder, source: Any, limits: Sequence[int], config: SearchConfig, **options: Any
) -> list[list[Hypothesis]]:
    """All steps of `search_steps` at once."""
    return last_result(search_steps(decoder, source, limits, config, **options))


def search_steps(
    decoder: Decoder,
    source: Any,
    limits: Sequence[int],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | str = "cpu",
    constraint: Constraint | None = None,
    symbols: SymbolRule | None = None,
) -> SearchSteps:
    """Search for the hypotheses of each sentence, best first; those of sentence b have at most limits[b] tokens."""
    common: dict[str, Any] = {
        "alpha": config.length_penalty, "min_length": config.min_length, "no_repeat": config.no_repeat,
        "prefixes": prefixes, "device": device, "constraint": constraint, "symbols": symbols,
    }  # fmt: skip
    if config.sample:
        choose = sampler(config.temperature, config.top_k, config.top_p, config.seed, device, config.min_p)
        return roll_out_search(decoder, source, limits, choose, rows=config.nbest, **common)
    if config.beam == 1:
        return roll_out_search(decoder, source, limits, greedy_choice, **common)
    return beam_search_steps(decoder, source, limits, beam=config.beam, nbest=config.nbest, **common)
