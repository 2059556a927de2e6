"""The inspection of a text in the binary format of `serialize`.

The tokens of the text are the source, and the attention is that of the encoder; `target` has the tokens that the
predictions are about (null: unknown), and `places` their positions in the source. There is no search tree.
"""

from typing import Any

import torch

from transduce.config import to_table
from transduce.encoders.text_encoder import MASK_TEXT
from transduce.inspect.predictions import TEMPERATURES
from transduce.inspect.serialize import LENS_TOKENS, encode, position_bytes, prediction_lists, rounded, weight_bytes
from transduce.inspect.text_inspection import TextInspection
from transduce.models.decoder_only import DecoderOnly
from transduce.models.encoder_only import EncoderOnly


def serialize_text(inspection: TextInspection) -> bytes:
    """Encode the inspection of a text in the binary format."""
    none = torch.empty(0, 1, 0, dtype=torch.uint8)
    tables = {
        "encoder": weight_bytes(inspection.attention_LHTT),
        "cross": none[..., None],
        "decoder": none,
        "positions": position_bytes(inspection.positions_TD),
    }
    return encode(_header(inspection), tables)


def _header(inspection: TextInspection) -> dict[str, Any]:
    model, settings = inspection.model, to_table(inspection.model.config)
    lens = [prediction_lists(layer, LENS_TOKENS) for layer in inspection.layers]
    following = prediction_lists(inspection.layers[-1], None) if inspection.layers else None
    for layer in (*lens, *([following] if following else ())):
        pairs = zip(layer["written"], inspection.expected, strict=True)
        layer["written"] = [None if token is None else log_prob for log_prob, token in pairs]
    return {
        "kind": "language_model" if isinstance(model, DecoderOnly) else "encoder",
        "text": inspection.text,
        "prefix": [],
        "off": [],
        "log_prob": inspection.log_prob,
        "source": inspection.tokens,
        "target": inspection.expected,
        "places": inspection.places,
        "tokens": _tokens(inspection, [*lens, *([following] if following else ())]),
        "next": following and {**following, "temperatures": TEMPERATURES, "log_sum": rounded(inspection.log_sum_PX)},
        "lens": lens,
        "ablation": None,
        "model": {
            "d_model": model.config.d_model,
            "num_heads": inspection.attention_LHTT.shape[1],
            "encoder_layers": len(inspection.attention_LHTT),
            "decoder_layers": 0,
            "positions": settings["positions"],
            "vocab_size": model.vocab_size,
            "parameters": model.parameters_count,
        },
        "seconds": {"other": inspection.seconds},
    }


def _tokens(inspection: TextInspection, predictions: list[dict[str, Any]]) -> dict[int, list[str]]:
    """The piece of each token; with its bytes if the text has it."""
    predicted = {token for layer in predictions for tokens in layer["token"] for token in tokens}
    entries = {token: inspection.tokenizer.pieces([token]) for token in sorted(predicted | {*inspection.tokens})}
    for token in {*inspection.tokens}:
        entries[token].append(inspection.tokenizer.raw_bytes(token).hex())
    if isinstance(inspection.model, EncoderOnly):
        for place in inspection.places:
            entries[inspection.tokens[place]][0] = MASK_TEXT
    return entries
