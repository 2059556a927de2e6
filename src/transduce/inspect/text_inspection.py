"""Inspection of one text that a language model or an encoder reads: tokens, attention weights and predictions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.data.batch import Batch
from transduce.encoders.text_encoder import MASK_TEXT, TextEncoder
from transduce.errors import DataError, ModelError
from transduce.inspect.inspection import Predictions, logit_lens, position_table
from transduce.inspect.request import MAX_TOKENS, check_characters
from transduce.language_model.generator import Generator
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_only import EncoderOnly
from transduce.nn.observe import observe_attention, observe_layers
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.tokenizer import BOS, EOS, PAD


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
    attention_LHTT, hiddens_LPD = _observe(model, tokens, places)
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


def _observe(model: DecoderOnly | EncoderOnly, tokens: list[int], places: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Attention weights, and the vectors that the output projection reads after each layer, at the places."""
    batch = Batch.of(model.device, text=[tokens])
    place_P = torch.tensor(places, dtype=torch.int64, device=model.device)
    if isinstance(model, DecoderOnly):
        with observe_attention(model) as recorded, observe_layers(model.decoder) as layers:
            model(batch)
        hiddens_LPD = [model.decoder_norm(x_TD)[place_P] for x_TD in layers]
    else:
        with observe_attention(model) as recorded, observe_layers(model.encoder) as layers:
            model.encode(batch)
        hiddens_LPD = [model.head(model.encoder_norm(x_TD)[place_P]) for x_TD in layers] if places else []
    return torch.cat(list(recorded.values())), hiddens_LPD
