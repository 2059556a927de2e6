"""How to search, and the one call that does it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from transduce.config import require
from transduce.search.beam import beam_search
from transduce.search.decoder import Decoder, Hypothesis
from transduce.search.sampling import likeliest, roll_out, sampler


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """The paper's beam search by default (section 6.1)."""

    beam: int = 4
    """Hypotheses kept at each step; 1 is greedy search."""
    length_penalty: float = 0.6
    """alpha: 0 favours short outputs, more favours longer ones."""
    max_extra: int = 50
    """An output has at most this many tokens more than its input."""
    max_length: int | None = None
    """An output has at most this many tokens, where given."""
    no_repeat: int = 0
    """No run of so many tokens comes twice in an output; 0 lets words repeat as they like."""
    nbest: int = 1
    """Outputs for each input."""
    sample: bool = False
    """Draw outputs at random instead of searching for the best."""
    temperature: float = 1.0
    """Below 1 sampling keeps closer to the likeliest words, above 1 it strays."""
    top_k: int = 0
    """Sample among so many likeliest words only; 0 is all."""
    top_p: float = 1.0
    """Sample among the likeliest words that together have this probability."""
    seed: int = 1
    """Of sampling."""

    def __post_init__(self) -> None:
        require(self.beam >= 1, "beam must be at least 1")
        require(self.max_extra >= 0, "max_extra must be at least 0")
        require(self.max_length is None or self.max_length >= 1, "max_length must be at least 1")
        require(self.no_repeat >= 0, "no_repeat must be at least 0")
        require(self.nbest >= 1, "nbest must be at least 1")
        require(self.sample or self.nbest <= self.beam, f"nbest {self.nbest} needs a beam of as many, not {self.beam}")
        require(abs(self.length_penalty) <= 10, "length_penalty must be between -10 and 10")
        require(self.temperature >= 1e-3, "temperature must be at least 0.001")
        require(0 <= self.seed < 2**31, "seed must be at least 0 and below 2^31")
        require(self.top_k >= 0, "top_k must be at least 0")
        require(0 < self.top_p <= 1, "top_p must be above 0 and at most 1")


def search(
    decoder: Decoder,
    source: Any,
    limits: Sequence[int],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """The outputs of every sentence, best first; sentence b's have at most limits[b] tokens."""
    common: dict[str, Any] = {
        "alpha": config.length_penalty, "no_repeat": config.no_repeat, "prefixes": prefixes, "device": device
    }  # fmt: skip
    if config.sample:
        choose = sampler(config.temperature, config.top_k, config.top_p, config.seed, device)
        return roll_out(decoder, source, limits, choose, rows=config.nbest, **common)
    if config.beam == 1:
        return roll_out(decoder, source, limits, likeliest, **common)
    return beam_search(decoder, source, limits, beam=config.beam, nbest=config.nbest, **common)
