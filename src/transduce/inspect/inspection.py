"""Inspection of one translation: tokens, attention weights, search tree and next-token predictions."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transduce.config import require
from transduce.data.batch import Batch, Stream
from transduce.errors import ConfigError, DataError, ModelError
from transduce.files.given_texts import require_text
from transduce.inspect.ablate import without_heads
from transduce.inspect.heads import STACKS, Head, Stack, count_layers, module_name, parse_heads
from transduce.inspect.predictions import Predictions, logit_lens
from transduce.inspect.request import InspectionRequest as InspectionRequest
from transduce.inspect.request import can_inspect
from transduce.inspect.tree import Node, build_tree
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_only import EncoderOnly
from transduce.models.model import Model
from transduce.nn.embedding import Embedding
from transduce.nn.observe import observe_attention, observe_layers
from transduce.nn.segments import pack_tokens
from transduce.search.beam import Extensions, beam_search
from transduce.search.decoder import NEVER_GENERATED, Decoder, Hypothesis
from transduce.search.engine import Job, output_limit
from transduce.search.options import SearchConfig
from transduce.tokenizers.tokenizer import BOS, EOS
from transduce.translation.text import Segment
from transduce.translation.translator import Translator

MAX_CHARACTERS, MAX_TOKENS, MAX_BEAM = 10_000, 256, 16
"""Limits of one inspection: the attention weights grow with the square of the number of tokens."""
MIN_POSITIONS = 64
"""Minimum number of positional encodings: those of a short sentence do not show the pattern."""


@dataclass(frozen=True)
class Ablation:
    """The translation with all heads, for comparison with the one without some heads."""

    full: Hypothesis
    """Best hypothesis of the model with all heads."""
    rescored: Hypothesis
    """The same tokens, scored without the heads that are switched off."""


@dataclass(frozen=True)
class Inspection:
    """All data about one translation. Decoder step t reads BOS and the first t target tokens, and writes one token."""

    request: InspectionRequest
    config: SearchConfig
    best: Hypothesis
    part: Segment
    """The text as the translator reads it: with slots for protected spans, and the tag of the target language."""
    source: list[int]
    """Token ids that the encoder read, with the end marker."""
    target: list[int]
    """Token id that each decoder step wrote, with the end marker."""
    attention: dict[Stack, Tensor]
    """Attention weights (layer, head, query position, key position); the decoder's keys are BOS and earlier tokens.

    Models other than the encoder-decoder have cross-attention only; the others then have no layers."""
    tree: list[Node]
    layers: list[Predictions]
    """Predictions of each decoder layer; those of the last are the model's own."""
    log_sum_TX: Tensor
    """Normalisers for other temperatures, see `logit_lens`."""
    positions_TD: Tensor
    """The model's positional encoding; no rows if it has none that is shown."""
    ablation: Ablation | None
    """None if no heads are switched off."""
    search_seconds: float
    other_seconds: float


@torch.inference_mode()
def inspect_translation(translator: Translator, request: InspectionRequest) -> Inspection:
    """Translate a text and record attention, search and predictions; other threads may use the model meanwhile."""
    start = time.perf_counter()
    config = _config(translator, request)
    part = inspected_part(translator, request.text, request.to)
    source = [*part.tokens, EOS]
    full_model = inspected_model(translator)
    check_tokens(request.prefix, full_model)
    off = _heads(request.off, full_model)
    model = without_heads(full_model, [(head.module, head.head) for head in off])

    steps: list[Extensions] = []
    search_start = time.perf_counter()
    best = _search(model, source, config, request.prefix, steps)
    search_seconds = time.perf_counter() - search_start

    target = [*best.tokens, EOS]
    attention, hiddens_LMD, positions_TD = _observe(model, source, [BOS, *best.tokens])
    predictions, log_sum_TX = logit_lens(model, hiddens_LMD, target)
    ablation = _ablation(full_model, model, source, config, request.prefix) if off else None
    return Inspection(
        request=request,
        config=config,
        best=best,
        part=part,
        source=source,
        target=target,
        attention=attention,
        tree=build_tree(steps),
        layers=predictions,
        log_sum_TX=log_sum_TX,
        positions_TD=positions_TD,
        ablation=ablation,
        search_seconds=search_seconds,
        other_seconds=time.perf_counter() - start - search_seconds,
    )


def inspected_model(translator: Translator) -> Model:
    """The model of a translator, if it can be inspected."""
    model = translator.model
    if isinstance(model, EncoderDecoder) and model.config.decoder_cell != "attention":
        raise ModelError(f"models with model.decoder_cell = {model.config.decoder_cell} cannot be inspected")
    if not can_inspect(translator):
        raise ModelError(f"models of the architecture {model.config.architecture} cannot be inspected")
    return model


def _heads(names: list[str], model: Model) -> list[Head]:
    """The heads to switch off, which only the Transformer has."""
    if isinstance(model, EncoderDecoder):
        return parse_heads(names, model.config)
    if names:
        raise ConfigError(f"models of the architecture {model.config.architecture} have no heads to switch off")
    return []


def _observe(model: Model, source: list[int], inputs: list[int]) -> tuple[dict[Stack, Tensor], list[Tensor], Tensor]:
    """Attention weights, the hidden vectors of each decoder layer and the positional encoding of a forward pass."""
    batch = Batch.of(model.device, src=[source], tgt=[inputs])
    if isinstance(model, EncoderDecoder):
        with observe_attention(model) as recorded, observe_layers(model.decoder) as layers:
            model(batch)
        attention = {
            stack: torch.cat([recorded[module_name(stack, n)] for n in range(count_layers(model.config, stack))])
            for stack in STACKS
        }
        return (
            attention,
            [model.decoder_norm(x_MD) for x_MD in layers],
            position_table(model, len(source), len(inputs)),
        )
    with observe_attention(model) as recorded:
        hidden_MD = model(batch)
    cross_LHTS, none = torch.cat(list(recorded.values())), hidden_MD.new_empty
    S, T = len(source), len(inputs)
    attention = {"encoder": none(0, 1, S, S), "decoder": none(0, 1, T, T), "cross": cross_LHTS}
    return attention, [hidden_MD], none(0, model.config.d_model)


def position_table(model: EncoderDecoder | DecoderOnly | EncoderOnly, *lengths: int) -> Tensor:
    """The positional encoding that is added to embeddings; empty if there is none."""
    positions = model.embedding.positions if isinstance(model.embedding, Embedding) else None
    if positions is None:
        return model.output_weight_VD.new_empty(0, model.config.d_model)
    return positions.table_TD[: max(*lengths, MIN_POSITIONS)]


def _search(
    model: Model,
    source: list[int],
    config: SearchConfig,
    prefix: Sequence[int],
    steps: list[Extensions] | None = None,
) -> Hypothesis:
    """The best hypothesis. The search continues until `beam` hypotheses are finished, so that they can be compared."""
    job = Job(source[:-1], list(prefix))
    device = model.device
    assert isinstance(model, Decoder)
    (hypotheses,) = beam_search(
        model,
        Stream(*pack_tokens([source], device)),
        [output_limit(job, config, model.longest)],
        beam=config.beam,
        alpha=config.length_penalty,
        nbest=config.beam,
        min_length=config.min_length,
        no_repeat=config.no_repeat,
        prefixes=[job.prefix],
        device=device,
        on_step=steps.append if steps is not None else None,
    )
    if not hypotheses:
        raise ModelError("the model's scores are not finite numbers")
    return hypotheses[0]


def _ablation(full: Model, ablated: Model, source: list[int], config: SearchConfig, prefix: Sequence[int]) -> Ablation:
    best = _search(full, source, config, prefix)
    return Ablation(best, _search(ablated, source, replace(config, beam=1), [*best.tokens, EOS]))


def _config(translator: Translator, request: InspectionRequest) -> SearchConfig:
    config = replace(translator.config, sample=False, nbest=1)
    if request.beam is not None:
        config = replace(config, beam=request.beam)
    if request.length_penalty is not None:
        config = replace(config, length_penalty=request.length_penalty)
    require(config.beam <= MAX_BEAM, f"beam must be at most {MAX_BEAM} for an inspection")
    return config


def inspected_part(translator: Translator, text: str, to: str | None) -> Segment:
    """The text as one part; a DataError if it cannot be inspected."""
    check_characters(text)
    part = translator.whole(text, to)
    if len(part.tokens) > MAX_TOKENS:
        raise DataError(f"the text has {len(part.tokens):,} tokens; at most {MAX_TOKENS} can be inspected: shorten it")
    return part


def check_characters(text: str) -> None:
    """Raise a DataError if a text is not valid or too long to be tokenized."""
    require_text(text, "the text")
    if len(text) > MAX_CHARACTERS:
        raise DataError(
            f"the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} can be inspected: shorten it"
        )


def check_tokens(prefix: list[int], model: Model) -> None:
    """Raise ConfigError if an output cannot begin with these token ids."""
    longest = 2 * MAX_TOKENS if model.longest is None else min(model.longest, 2 * MAX_TOKENS)
    if len(prefix) > longest:
        raise ConfigError(f"the prefix has {len(prefix):,} tokens; an output may have {longest}: shorten it")
    for position, token in enumerate(prefix):
        if not 0 <= token < model.vocab_size:
            raise ConfigError(f"prefix: {token} is not a token id; the vocabulary has 0 to {model.vocab_size - 1}")
        if token in NEVER_GENERATED or (token == EOS and position < len(prefix) - 1):
            raise ConfigError(f"prefix: token {token} is a special token, which an output cannot contain there")
