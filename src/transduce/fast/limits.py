"""What the fast engines, `gpu` and `native`, have in common: the searches that they run, and how they force tokens."""

from transduce.models.config import EncoderDecoderConfig, ModelConfig
from transduce.search.engine import MOST_RESERVED, Job
from transduce.search.options import SearchConfig

MAX_BEAM = 16
ANY, ANY_BUT_END = -1, -2
"""Noted at a position where no token is forced; the second before the minimum length."""


def missing_bits(job: Job) -> int:
    """The symbols that an output lacks at first, as bits, the lowest for the first of `reserved`."""
    if not job.once:
        return 0
    assert len(job.reserved) <= MOST_RESERVED
    return sum(1 << job.reserved.index(symbol) for symbol in job.once)


def search_limits(
    config: ModelConfig, options: SearchConfig, *, constrained: bool = False, has_shortlist: bool = False
) -> str | None:
    """The search options that the fast engines do not support: they have greedy and beam search."""
    if constrained:
        return "no search that is held to a grammar"
    if config.architecture == "ensemble":
        return "no ensembles"
    if options.sample:
        return "no sampling"
    if options.no_repeat:
        return "no blocking of repeated n-grams"
    if options.shortlist and not has_shortlist:
        return "no lexical shortlist for this model"
    if options.beam > MAX_BEAM:
        return f"no beam above {MAX_BEAM}"
    return None


def attention_limits(config: EncoderDecoderConfig) -> str | None:
    """What neither engine computes; `gpu` runs the layers of the model, but has its own attention."""
    if config.heads.kv_heads != config.num_heads:
        return "no grouped heads of keys and values"
    if config.positions == "relative":
        return "no relative positions"
    if config.attention_variant is not None:
        return "no attention other than the paper's"
    return "no models that read sound" if config.source == "audio" else None
