"""Inspection of one translation, or of one text that a language model or an encoder reads.

It has the tokens, attention weights and predictions, and the search tree of a translation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from transduce.config import require
from transduce.data.batch import Batch, Stream
from transduce.encoders.text_encoder import MASK_TEXT, TextEncoder
from transduce.errors import ConfigError, DataError, ModelError
from transduce.inspect.heads import STACKS, Head, Stack, count_layers, module_name, parse_heads, without_heads
from transduce.inspect.request import (
    MAX_BEAM,
    MAX_TOKENS,
    check_characters,
    check_tokens,
    inspected_model,
    inspected_part,
)
from transduce.inspect.request import InspectionRequest as InspectionRequest
from transduce.language_model.generator import Generator
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_only import EncoderOnly
from transduce.models.model import Model
from transduce.nn.embedding import Embedding
from transduce.nn.observe import observe_attention, observe_layers
from transduce.nn.segments import pack_tokens
from transduce.search.beam import Extensions, beam_search
from transduce.search.constraint import SymbolRule
from transduce.search.decoder import Decoder, Hypothesis
from transduce.search.engine import output_limit
from transduce.search.options import SearchConfig
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.tokenizer import BOS, EOS, PAD
from transduce.translation.text import Segment
from transduce.translation.translator import Translator

MIN_POSITIONS = 64
"""Minimum number of positional encodings: those of a short sentence do not show the pattern."""
TOP_TOKENS = 10
"""Number of most probable tokens kept for each position."""
TEMPERATURES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)


NodeOutcome = Literal["kept", "pruned", "finished"]


@dataclass(frozen=True)
class Node:
    """A hypothesis: its parent's tokens and one more."""

    parent: int
    """Index of the parent; the root, the empty hypothesis, is its own parent."""
    token: int
    log_prob: float
    """Log-probability of all tokens up to this one."""
    outcome: NodeOutcome
    """Whether the search kept the hypothesis in the beam, pruned it, or finished it with the end marker."""


@dataclass(frozen=True)
class Predictions:
    """Log-probabilities of the next token at each of T positions."""

    token_TC: Tensor
    """The C most probable tokens, best first."""
    log_prob_TC: Tensor
    written_T: Tensor
    """Log-probability of the token that was written."""


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


@torch.inference_mode()
def inspect_translation(translator: Translator, request: InspectionRequest) -> Inspection:
    """Translate a text and record attention, search and predictions; other threads may use the model meanwhile."""
    config = _config(translator, request)
    part = inspected_part(translator, request.text, request.to)
    source = [*part.tokens, EOS]
    full_model = inspected_model(translator)
    check_tokens(request.prefix, full_model)
    off = _heads(request.off, full_model)
    model = without_heads(full_model, off)

    steps: list[Extensions] = []
    best = _search(model, part, config, request.prefix, steps)

    target = [*best.tokens, EOS]
    attention, hiddens_LMD, positions_TD = _observe(model, source, [BOS, *best.tokens])
    predictions, log_sum_TX = logit_lens(model, hiddens_LMD, target)
    ablation = None
    if off:
        full = _search(full_model, part, config, request.prefix)
        ablation = Ablation(full, _search(model, part, replace(config, beam=1), [*full.tokens, EOS]))
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
    )


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
        positions_TD = position_table(model, len(source), len(inputs))
        return attention, [model.decoder_norm(x_MD) for x_MD in layers], positions_TD
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
    model: Model, part: Segment, config: SearchConfig, prefix: Sequence[int], steps: list[Extensions] | None = None
) -> Hypothesis:
    """The best hypothesis. The search continues until `beam` hypotheses are finished, so that they can be compared."""
    job, device = replace(part, prefix=list(prefix)), model.device
    assert isinstance(model, Decoder)
    (hypotheses,) = beam_search(
        model,
        Stream(*pack_tokens([[*job.tokens, EOS]], device)),
        [output_limit(job, config, model.longest)],
        beam=config.beam,
        alpha=config.length_penalty,
        nbest=config.beam,
        min_length=config.min_length,
        no_repeat=config.no_repeat,
        prefixes=[job.prefix],
        symbols=SymbolRule(job.reserved, [job.once], device) if job.reserved else None,
        device=device,
        on_step=steps.append if steps is not None else None,
    )
    if not hypotheses:
        raise ModelError("the model's scores are not finite numbers")
    return hypotheses[0]


def _config(translator: Translator, request: InspectionRequest) -> SearchConfig:
    changes = {name: value for name in ("beam", "length_penalty") if (value := getattr(request, name)) is not None}
    config = replace(translator.config, sample=False, nbest=1, **changes)
    require(config.beam <= MAX_BEAM, f"beam must be at most {MAX_BEAM} for an inspection")
    return config


def build_tree(steps: Sequence[Extensions]) -> list[Node]:
    """The nodes of one sentence's search in the order of the steps, the best node of each step first."""
    nodes = [Node(0, BOS, 0.0, "kept")]
    node_of_row = [0] * steps[0].kept_BW.shape[1]
    for step in steps:
        kept = step.kept_BW[0].tolist()
        node_of_candidate: dict[int, int] = {}
        candidates = zip(
            step.parent_BC[0].tolist(), step.token_BC[0].tolist(), step.log_prob_BC[0].tolist(), strict=True
        )
        for index, (row, token, log_prob) in enumerate(candidates):
            if log_prob == -float("inf"):
                continue
            node_of_candidate[index] = len(nodes)
            outcome: NodeOutcome = "finished" if token == EOS else "kept" if index in kept else "pruned"
            nodes.append(Node(node_of_row[row], token, log_prob, outcome))
        # Empty rows have log-probability -inf, and so do all their extensions.
        node_of_row = [node_of_candidate.get(index, 0) for index in kept]
    return nodes


def logit_lens(model: Model, hiddens_LMD: Sequence[Tensor], written: Sequence[int]) -> tuple[list[Predictions], Tensor]:
    """The predictions of each decoder layer as if it were the last one, and log_sum_TX for other temperatures.

    The hidden vectors of each layer go through the output projection; those of the last layer are the model's own
    predictions. log_sum_TX is log Σ p^(1/τ) over the vocabulary, for each τ in TEMPERATURES and the model's own
    probabilities p: with temperature τ, log p becomes (log p) / τ minus this.
    """
    layers = []
    for hidden_MD in hiddens_LMD:
        log_prob_TV = model.logits(hidden_MD).float().log_softmax(-1)
        log_prob_TC, token_TC = log_prob_TV.topk(min(TOP_TOKENS, log_prob_TV.shape[1]))
        written_T1 = torch.tensor(written, device=log_prob_TV.device)[:, None]
        layers.append(Predictions(token_TC, log_prob_TC, log_prob_TV.gather(1, written_T1)[:, 0]))
    log_sum_TX = torch.stack([(log_prob_TV / temperature).logsumexp(-1) for temperature in TEMPERATURES], dim=1)
    return layers, log_sum_TX


@dataclass(frozen=True)
class ReferenceToken:
    """A token of a given translation, or its end marker."""

    token: int
    piece: str
    log_prob: float
    rank: int
    """1 if no token was more probable."""
    best: str
    """The most probable token there."""
    best_log_prob: float


@torch.inference_mode()
def score_reference(translator: Translator, text: str, reference: str, to: str | None = None) -> list[ReferenceToken]:
    """The probability and the rank of each token of a translation of a text, and of its end marker."""
    part, model = inspected_part(translator, text, to), inspected_model(translator)
    tokenizer = translator.tokenizer.target
    tokens = tokenizer.encode(reference.strip())
    if not tokens:
        raise DataError("the reference is empty")
    longest = MAX_TOKENS if model.longest is None else min(MAX_TOKENS, model.longest - 1)
    if len(tokens) > longest:
        raise DataError(f"the reference has {len(tokens):,} tokens; at most {longest} can be inspected: shorten it")
    batch = Batch.of(model.device, src=[[*part.tokens, EOS]], tgt=[[BOS, *tokens]])
    log_prob_TV = model.logits(model(batch)).float().log_softmax(-1)
    written = [*tokens, EOS]
    written_T1 = torch.tensor(written, device=log_prob_TV.device)[:, None]
    written_log_prob_T1 = log_prob_TV.gather(1, written_T1)
    rank_T = 1 + (log_prob_TV > written_log_prob_T1).sum(1)
    best_log_prob_T, best_T = log_prob_TV.max(1)
    columns = zip(
        written,
        tokenizer.pieces(written),
        written_log_prob_T1[:, 0].tolist(),
        rank_T.tolist(),
        tokenizer.pieces(best_T.tolist()),
        best_log_prob_T.tolist(),
        strict=True,
    )
    return [ReferenceToken(*row) for row in columns]


# Texts that a language model or an encoder reads


@dataclass(frozen=True)
class TextInspection:
    """All data about one text: a language model predicts the next token at each position, an encoder each mask."""

    text: str
    model: DecoderOnly | EncoderOnly
    tokenizer: AnyTokenizer
    tokens: list[int]
    """Token ids that the model read, with markers."""
    attention_LHTT: Tensor
    """Attention weights (layer, head, query position, key position)."""
    places: list[int]
    """The positions that have predictions."""
    expected: list[int | None]
    """For each of them, the token that the text has there; None after the last token, and at masks."""
    layers: list[Predictions]
    """Predictions of each layer, at the places; those of the last are the model's own. Empty without places."""
    log_sum_PX: Tensor
    """Normalisers for other temperatures, see `logit_lens`."""
    positions_TD: Tensor
    """The positional encoding that is added to embeddings; no rows if there is none."""

    @property
    def log_prob(self) -> float | None:
        """The log-probability of the text, without an end marker; None if the model does not predict next tokens."""
        return self.layers[-1].written_T[:-1].sum().item() if isinstance(self.model, DecoderOnly) else None


@torch.inference_mode()
def inspect_text(reader: Generator | TextEncoder, text: str) -> TextInspection:
    """Read a text once, and record attention and predictions."""
    check_characters(text)
    if not text.strip():
        raise DataError("the text is empty")
    model = reader.model
    if isinstance(reader, Generator):
        tokens, longest = [BOS, *reader.tokenizer.encode_document(text)], reader.context
        places = list(range(len(tokens)))
        expected: list[int | None] = [*tokens[1:], None]
    elif MASK_TEXT in text and not reader.model.config.classes:
        tokens, places = reader.encode_masked(text)
        longest, expected = reader.max_length + 2, [None] * len(places)
    else:
        tokens, places, expected = [BOS, *reader.tokenizer.encode(text), EOS], [], []
        longest = reader.max_length + 2
    if not isinstance(model, DecoderOnly | EncoderOnly):
        raise ModelError(f"models of the architecture {model.config.architecture} cannot be inspected")
    longest = min(longest, MAX_TOKENS)
    if len(tokens) > longest:
        raise DataError(
            f"the text has {len(tokens):,} tokens with markers; at most {longest} can be inspected: shorten it"
        )
    attention_LHTT, hiddens_LPD = _observe_text(model, tokens, places)
    written = [PAD if token is None else token for token in expected]
    layers, log_sum_PX = logit_lens(model, hiddens_LPD, written) if places else ([], torch.empty(0, 0))
    return TextInspection(
        text=text,
        model=model,
        tokenizer=reader.tokenizer,
        tokens=tokens,
        attention_LHTT=attention_LHTT,
        places=places,
        expected=expected,
        layers=layers,
        log_sum_PX=log_sum_PX,
        positions_TD=position_table(model, len(tokens)),
    )


def _observe_text(
    model: DecoderOnly | EncoderOnly, tokens: list[int], places: list[int]
) -> tuple[Tensor, list[Tensor]]:
    """Attention weights, and the vectors that the output projection reads after each layer, at the places."""
    batch, place_P = Batch.of(model.device, text=[tokens]), torch.tensor(places, dtype=torch.int64, device=model.device)
    if isinstance(model, DecoderOnly):
        with observe_attention(model) as recorded, observe_layers(model.decoder) as layers:
            model(batch)
        hiddens_LPD = [model.decoder_norm(x_TD)[place_P] for x_TD in layers]
    else:
        with observe_attention(model) as recorded, observe_layers(model.encoder) as layers:
            model.encode(batch)
        hiddens_LPD = [model.head(model.encoder_norm(x_TD)[place_P]) for x_TD in layers] if places else []
    return torch.cat(list(recorded.values())), hiddens_LPD
