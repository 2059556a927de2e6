"""A look as bytes, for the page: length of the header (4 bytes, little-endian), header (JSON), then a block of uint8.

The header says where in the block each table begins and what shape it has. A weight w is the byte round(255 w). What
lies above the diagonal of the decoder's self-attention is always 0 and is left out. Token ids stand for tokens:
`tokens` has each one's piece, and the bytes of those that were said.
"""

import json
from typing import Any

import torch
from torch import Tensor

from transduce.inspect.guesses import TEMPERATURES, Guesses
from transduce.inspect.look import Look, Unchanged, inspected_model
from transduce.inspect.tree import Node
from transduce.search.decoder import Hypothesis
from transduce.text.tokenizer import Tokenizer
from transduce.translator import Translator

LENS_DEPTH = 4
"""Guesses of each layer that the page shows."""


def to_bytes(look: Look, translator: Translator) -> bytes:
    """The header and the block."""
    tables = {"encoder": look.attention["encoder"], "cross": look.attention["cross"]}
    T = len(look.target)
    row, column = torch.tril_indices(T, T)
    blocks = {
        **{name: _weights(weights_LHTS) for name, weights_LHTS in tables.items()},
        "decoder": _weights(look.attention["decoder"])[:, :, row, column],
        "positions": _positions(look.positions_TD),
    }
    header, at = _header(look, translator), 0
    header["blocks"] = {}
    for name, block in blocks.items():
        header["blocks"][name] = {"at": at, "shape": list(block.shape)}
        at += block.numel()
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, *(block.numpy().tobytes() for block in blocks.values())])


def _weights(weights: Tensor) -> Tensor:
    return (weights.float().cpu() * 255).round().to(torch.uint8)


def _positions(table_TD: Tensor) -> Tensor:
    """-m to m as 1 to 255, m the largest there is."""
    table_TD = table_TD.float().cpu()
    return (128 + 127 * table_TD / table_TD.abs().max().clamp(min=1e-9)).round().to(torch.uint8)


def _header(look: Look, translator: Translator) -> dict[str, Any]:
    model, tokenizer = inspected_model(translator), translator.tokenizer
    lens = [_guesses(layer, LENS_DEPTH) for layer in look.layers]
    following = _guesses(look.layers[-1], depth=None)
    return {
        "text": look.request.text,
        "prefix": look.request.prefix,
        "off": look.request.off,
        "beam": look.config.beam,
        "alpha": look.config.length_penalty,
        "translation": tokenizer.decode(look.best.tokens),
        "log_prob": look.best.log_prob,
        "score": look.best.score,
        "source": look.source,
        "target": look.target,
        "tokens": _tokens(look, [following, *lens], tokenizer),
        "tree": _tree(look.tree),
        "next": {
            **following,
            "temperatures": TEMPERATURES,
            "log_sum": _rounded(look.log_sum_TX),
        },
        "lens": lens,
        "unchanged": _unchanged(look.unchanged, translator) if look.unchanged else None,
        "model": {
            "d_model": model.config.d_model,
            "num_heads": model.config.num_heads,
            "encoder_layers": model.config.encoder_layers,
            "decoder_layers": model.config.decoder_layers,
            "positions": model.config.positions,
            "vocab_size": model.vocab_size,
            "parameters": model.parameters_count,
        },
        "seconds": {"search": look.search_seconds, "other": look.other_seconds},
    }


def _tokens(look: Look, guesses: list[dict[str, Any]], tokenizer: Tokenizer) -> dict[int, list[str]]:
    """Pieces, with their bytes where the page spells text with them or tells of them."""
    said = {*look.source, *look.target, *(node.token for node in look.tree)}
    said.update(look.unchanged.whole.tokens if look.unchanged else [])
    guessed = {token for layer in guesses for tokens in layer["token"] for token in tokens} - said
    entries = {token: tokenizer.pieces([token]) for token in sorted(said | guessed)}
    for token in said:
        entries[token].append(tokenizer.raw_bytes(token).hex())
    return entries


def _tree(nodes: list[Node]) -> dict[str, list[Any]]:
    return {
        "parent": [node.parent for node in nodes],
        "token": [node.token for node in nodes],
        "log_prob": [round(node.log_prob, 6) for node in nodes],
        "fate": [node.fate for node in nodes],
    }


def _guesses(layer: Guesses, depth: int | None) -> dict[str, Any]:
    return {
        "token": layer.token_TC[:, :depth].tolist(),
        "log_prob": _rounded(layer.log_prob_TC[:, :depth]),
        "written": _rounded(layer.written_T),
    }


def _unchanged(found: Unchanged, translator: Translator) -> dict[str, Any]:
    def entry(hypothesis: Hypothesis) -> dict[str, float]:
        return {"log_prob": hypothesis.log_prob, "score": hypothesis.score}

    return {
        "translation": translator.tokenizer.decode(found.whole.tokens),
        "target": found.whole.tokens,
        "whole": entry(found.whole),
        "silenced": entry(found.silenced),
    }


def _rounded(x: Tensor) -> list[Any]:
    """Numbers to four places, enough for a page."""
    return (x.double() * 1e4).round().div(1e4).tolist()
