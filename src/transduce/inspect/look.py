"""One translation, looked into: what was read and written, what looked at what, how the search went."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from transduce.config import require
from transduce.data.batch import Batch, Stream
from transduce.engines.engine import Job, output_limit
from transduce.errors import ConfigError, DataError, ModelError
from transduce.inspect.guesses import Guesses, guess
from transduce.inspect.heads import STACKS, Stack, count_layers, module_name, parse_heads
from transduce.inspect.tree import Node, grow_tree
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.ablate import without_heads
from transduce.nn.observe import observe_attention, observe_layers
from transduce.nn.segments import pack_tokens
from transduce.search.beam import Extensions, beam_search
from transduce.search.decoder import NEVER_SAID, Hypothesis
from transduce.search.options import SearchConfig
from transduce.text.tokenizer import BOS, EOS
from transduce.translator import Translator

MOST_CHARACTERS, MOST_TOKENS, WIDEST_BEAM = 10_000, 128, 16
"""What can be looked at at once: attention grows with the square of the tokens."""
PLACES = 64
"""Positions shown, at least: a short sentence alone would hide the pattern."""


@dataclass(frozen=True, kw_only=True)
class LookRequest:
    """What to look at."""

    text: str
    beam: int | None = None
    """Hypotheses kept at each step; the translator's own unless given."""
    length_penalty: float | None = None
    """alpha; the translator's own unless given."""
    prefix: list[int] = field(default_factory=list)
    """Ids the output must begin with; an end marker behind them forces a whole output."""
    off: list[str] = field(default_factory=list)
    """Heads that are switched off, e.g. cross.1.2."""


@dataclass(frozen=True)
class Unchanged:
    """What the model says with all its heads, and what is left of that when some are switched off."""

    whole: Hypothesis
    """Found and scored with all heads."""
    silenced: Hypothesis
    """The same tokens, scored without those heads."""


@dataclass(frozen=True)
class Look:
    """Everything there is to see. Places of the target are steps: step t has read BOS and t tokens, and writes one."""

    request: LookRequest
    config: SearchConfig
    best: Hypothesis
    source: list[int]
    """What the encoder read, the end marker last."""
    target: list[int]
    """What each step wrote, the end marker last."""
    attention: dict[Stack, Tensor]
    """Weights (layer, head, place that looks, place looked at); the decoder looks at BOS and what it has written."""
    tree: list[Node]
    layers: list[Guesses]
    """Of each decoder layer; the last one's are the model's own."""
    log_sum_TX: Tensor
    """For probabilities under a temperature, see `guess`."""
    positions_TD: Tensor
    """The model's positional encoding."""
    unchanged: Unchanged | None
    """Only where heads are switched off."""
    search_seconds: float
    other_seconds: float


@torch.inference_mode()
def look(translator: Translator, request: LookRequest) -> Look:
    """Translate a text and watch. Nothing is left behind in the model, which may be at work elsewhere meanwhile."""
    began = time.perf_counter()
    config = _config(translator, request)
    source = _source(translator, request.text)
    _check_prefix(request.prefix, inspected_model(translator))
    unchanged_model = inspected_model(translator)
    off = parse_heads(request.off, unchanged_model.config)
    model = without_heads(unchanged_model, [(head.module, head.head) for head in off])

    steps: list[Extensions] = []
    search_began = time.perf_counter()
    best = _search(model, source, config, request.prefix, steps)
    search_seconds = time.perf_counter() - search_began

    target = [*best.tokens, EOS]
    with observe_attention(model) as seen, observe_layers(model.decoder) as layers:
        model(Batch.of(translator.device, src=[source], tgt=[[BOS, *best.tokens]]))
    guesses, log_sum_TX = guess(model, layers, target)
    unchanged = _unchanged(unchanged_model, model, source, config, request.prefix) if off else None
    return Look(
        request=request,
        config=config,
        best=best,
        source=source,
        target=target,
        attention={
            stack: torch.cat([seen[module_name(stack, n)] for n in range(count_layers(model.config, stack))])
            for stack in STACKS
        },
        tree=grow_tree(steps),
        layers=guesses,
        log_sum_TX=log_sum_TX,
        positions_TD=model.embedding.positions.table_TD[: max(len(source), len(target), PLACES)],
        unchanged=unchanged,
        search_seconds=search_seconds,
        other_seconds=time.perf_counter() - began - search_seconds,
    )


def inspected_model(translator: Translator) -> EncoderDecoder:
    """The model of a translator; only the encoder-decoder can be inspected."""
    if not isinstance(translator.model, EncoderDecoder):
        raise ModelError(f"models of the architecture {translator.model.config.architecture} cannot be inspected")
    return translator.model


def _search(
    model: EncoderDecoder,
    source: list[int],
    config: SearchConfig,
    prefix: Sequence[int],
    steps: list[Extensions] | None = None,
) -> Hypothesis:
    """The best output. Search goes on until a whole beam of outputs is final, so that there is something to compare."""
    job = Job(source[:-1], list(prefix))
    device = model.device
    (found,) = beam_search(
        model,
        Stream(*pack_tokens([source], device)),
        [output_limit(job, config, model.longest)],
        beam=config.beam,
        alpha=config.length_penalty,
        nbest=config.beam,
        no_repeat=config.no_repeat,
        prefixes=[job.prefix],
        device=device,
        watch=steps.append if steps is not None else None,
    )
    if not found:
        raise ModelError("the model's scores are not finite numbers")
    return found[0]


def _unchanged(
    whole: EncoderDecoder, silenced: EncoderDecoder, source: list[int], config: SearchConfig, prefix: Sequence[int]
) -> Unchanged:
    found = _search(whole, source, config, prefix)
    return Unchanged(found, _search(silenced, source, replace(config, beam=1), [*found.tokens, EOS]))


def _config(translator: Translator, request: LookRequest) -> SearchConfig:
    config = replace(translator.config, sample=False, nbest=1)
    if request.beam is not None:
        config = replace(config, beam=request.beam)
    if request.length_penalty is not None:
        config = replace(config, length_penalty=request.length_penalty)
    require(config.beam <= WIDEST_BEAM, f"beam must be at most {WIDEST_BEAM} to look at")
    return config


def _source(translator: Translator, text: str) -> list[int]:
    if not text.strip():
        raise DataError("there is no text to look at")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError("the text is not valid Unicode: it holds half of a surrogate pair") from None
    if len(text) > MOST_CHARACTERS:
        raise DataError(
            f"the text has {len(text):,} characters; at most {MOST_CHARACTERS:,} can be looked at: shorten it"
        )
    tokens = translator.tokenizer.encode(text)
    most = min(MOST_TOKENS, translator.max_source_length)
    if len(tokens) > most:
        raise DataError(f"the text has {len(tokens):,} tokens; at most {most} can be looked at at once: shorten it")
    return [*tokens, EOS]


def _check_prefix(prefix: list[int], model: EncoderDecoder) -> None:
    longest = min(model.longest or sys.maxsize, 2 * MOST_TOKENS)
    if len(prefix) > longest:
        raise ConfigError(f"the prefix has {len(prefix):,} tokens, more than the {longest} an output may have here")
    for place, token in enumerate(prefix):
        if not 0 <= token < model.vocab_size:
            raise ConfigError(f"prefix: {token} is no token; this vocabulary has 0 to {model.vocab_size - 1}")
        if token in NEVER_SAID or (token == EOS and place < len(prefix) - 1):
            raise ConfigError(f"prefix: token {token} is a marker, which no output holds there")
