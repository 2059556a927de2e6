"""Binary format of an inspection, which the page reads.

The length of the header (4 bytes, little-endian), the header (JSON), then tables of uint8. The header contains the
offset and shape of each table. An attention weight w is stored as round(255 w). The upper triangle of the decoder's
self-attention is always 0 and is left out. The header lists tokens by id; `tokens` contains the piece of each token and
the bytes of those in the source, the target and the search tree. If the source has a vocabulary of its own, its ids
follow those of the target.

`kind` is "translation", "language_model" or "encoder". Of a text that a language model or an encoder read, the tokens
are the source, and the attention is that of the encoder; `target` has the tokens that the predictions are about (null:
unknown), and `places` their positions in the source. There is no search tree.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transduce.config import to_table
from transduce.encoders.text_encoder import MASK_TEXT
from transduce.inspect.heads import rounded
from transduce.inspect.inspection import TEMPERATURES, Inspection, Predictions, TextInspection
from transduce.inspect.request import inspected_model
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_only import EncoderOnly
from transduce.models.model import Model
from transduce.tokenizers.any_tokenizer import AnyTokenizer, TokenizerPair
from transduce.tokenizers.tokenizer import EOS
from transduce.translation.pipeline import output_text
from transduce.translation.translator import Translator

_LENS_TOKENS = 4
"""Number of predictions of each layer that the page shows."""


def serialize(inspection: Inspection, translator: Translator) -> bytes:
    T = len(inspection.target)
    row, column = torch.tril_indices(T, T)
    tables = {
        **{name: _weight_bytes(inspection.attention[name]) for name in ("encoder", "cross")},
        "decoder": _weight_bytes(inspection.attention["decoder"])[:, :, row, column],
        "positions": _position_bytes(inspection.positions_TD),
    }
    return _encode(_header(inspection, translator), tables)


def _header(inspection: Inspection, translator: Translator) -> dict[str, Any]:
    model, tokenizer = inspected_model(translator), translator.tokenizer
    settings, ablation = to_table(model.config), inspection.ablation
    following, lens = _predictions(inspection.layers, inspection.log_sum_TX, inspection.target)
    return {
        "kind": "translation",
        "text": inspection.request.text,
        "prefix": inspection.request.prefix,
        "off": inspection.request.off,
        "beam": inspection.config.beam,
        "alpha": inspection.config.length_penalty,
        "translation": translation_text(inspection, inspection.best.tokens, tokenizer.target),
        "log_prob": inspection.best.log_prob,
        "score": inspection.best.score,
        "source": [_source_id(token, tokenizer) for token in inspection.source],
        "target": inspection.target,
        "tokens": _translation_tokens(inspection, [following, *lens], tokenizer),
        "tree": {
            "parent": [node.parent for node in inspection.tree],
            "token": [node.token for node in inspection.tree],
            "log_prob": [round(node.log_prob, 6) for node in inspection.tree],
            "outcome": [node.outcome for node in inspection.tree],
        },
        "next": following,
        "lens": lens,
        "ablation": ablation and {
            "translation": translation_text(inspection, ablation.full.tokens, tokenizer.target),
            "target": ablation.full.tokens,
            "full": {"log_prob": ablation.full.log_prob, "score": ablation.full.score},
            "rescored": {"log_prob": ablation.rescored.log_prob, "score": ablation.rescored.score},
        },
        "model": _model_facts(
            model, inspection.attention["cross"].shape[1], settings["encoder_layers"], settings["decoder_layers"]
        ),
    }  # fmt: skip


def _translation_tokens(
    inspection: Inspection, predictions: list[dict[str, Any]], tokenizer: AnyTokenizer
) -> dict[int, list[str]]:
    target = tokenizer.target
    decoded = {*inspection.target, *(node.token for node in inspection.tree)}
    decoded.update(inspection.ablation.full.tokens if inspection.ablation else [])
    entries = _tokens(decoded, predictions, target)
    for token in inspection.source:
        entries[_source_id(token, tokenizer)] = [*tokenizer.pieces([token]), tokenizer.raw_bytes(token).hex()]
    for symbol, required in inspection.part.slots.items():  # it stands for the text of the source
        for slot in (target.symbol_ids[symbol], _source_id(tokenizer.symbol_ids[symbol], tokenizer)):
            entries[slot] = [required.text, f" {required.text}".encode().hex()]
    return dict(sorted(entries.items()))


def _source_id(token: int, tokenizer: AnyTokenizer) -> int:
    """The id of a source token in the header."""
    separate = isinstance(tokenizer, TokenizerPair) and token > EOS
    return token + tokenizer.target.vocab_size if separate else token


def translation_text(inspection: Inspection, tokens: list[int], target: AnyTokenizer) -> str:
    """The text of output tokens, with the spans that slots stand for."""
    (marked,) = target.decode_all([tokens], marked=True) if tokens else ("",)
    return output_text(marked, inspection.part)


def serialize_text(inspection: TextInspection) -> bytes:
    """The bytes of a text that a language model or an encoder read."""
    model, none = inspection.model, torch.empty(0, 1, 0, dtype=torch.uint8)
    following, lens = None, list[dict[str, Any]]()
    if inspection.layers:
        following, lens = _predictions(inspection.layers, inspection.log_sum_PX, inspection.expected)
    entries = _tokens({*inspection.tokens}, [*lens, *([following] if following else ())], inspection.tokenizer)
    if isinstance(model, EncoderOnly):
        for place in inspection.places:
            entries[inspection.tokens[place]][0] = MASK_TEXT
    header = {
        "kind": "language_model" if isinstance(model, DecoderOnly) else "encoder",
        "text": inspection.text,
        "prefix": [],
        "off": [],
        "log_prob": inspection.log_prob,
        "source": inspection.tokens,
        "target": inspection.expected,
        "places": inspection.places,
        "tokens": dict(sorted(entries.items())),
        "next": following,
        "lens": lens,
        "ablation": None,
        "model": _model_facts(model, inspection.attention_LHTT.shape[1], len(inspection.attention_LHTT), 0),
    }
    tables = {
        "encoder": _weight_bytes(inspection.attention_LHTT),
        "cross": none[..., None],
        "decoder": none,
        "positions": _position_bytes(inspection.positions_TD),
    }
    return _encode(header, tables)


# The format


def _tokens(decoded: set[int], predictions: Sequence[dict[str, Any]], tokenizer: AnyTokenizer) -> dict[int, list[str]]:
    """The piece of each token; with its bytes if the page needs them to decode text."""
    predicted = {token for layer in predictions for tokens in layer["token"] for token in tokens}
    entries = {token: tokenizer.pieces([token]) for token in decoded | predicted}
    for token in decoded:
        entries[token].append(tokenizer.raw_bytes(token).hex())
    return entries


def _predictions(
    layers: Sequence[Predictions], log_sum_TX: Tensor, expected: Sequence[int | None]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The predictions of the model, with normalisers for other temperatures, and the first ones of each layer."""

    def listed(layer: Predictions, count: int | None) -> dict[str, Any]:
        written = zip(rounded(layer.written_T), expected, strict=True)
        return {
            "token": layer.token_TC[:, :count].tolist(),
            "log_prob": rounded(layer.log_prob_TC[:, :count]),
            "written": [None if token is None else log_prob for log_prob, token in written],
        }

    last = listed(layers[-1], None) | {"temperatures": TEMPERATURES, "log_sum": rounded(log_sum_TX)}
    return last, [listed(layer, _LENS_TOKENS) for layer in layers]


def _model_facts(model: Model, num_heads: int, encoder_layers: int, decoder_layers: int) -> dict[str, Any]:
    return {
        "d_model": model.config.d_model,
        "num_heads": num_heads,
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        "positions": to_table(model.config).get("positions"),
        "vocab_size": model.vocab_size,
        "parameters": model.parameters_count,
    }


def _encode(header: dict[str, Any], tables: dict[str, Tensor]) -> bytes:
    """A header and tables of uint8 in the binary format."""
    placed, offset = {}, 0
    for name, table in tables.items():
        placed[name] = {"offset": offset, "shape": list(table.shape)}
        offset += table.numel()
    text = json.dumps({**header, "tables": placed}, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, *(table.numpy().tobytes() for table in tables.values())])


def _weight_bytes(weights: Tensor) -> Tensor:
    """Scale weights from 0 to 1 to bytes."""
    return (weights.float().cpu() * 255).round().to(torch.uint8)


def _position_bytes(table_TD: Tensor) -> Tensor:
    """Scale -m to m, the largest magnitude, to 1 to 255."""
    table_TD = table_TD.float().cpu()
    largest = table_TD.abs().max().clamp(min=1e-9) if table_TD.numel() else 1.0
    return (128 + 127 * table_TD / largest).round().to(torch.uint8)
