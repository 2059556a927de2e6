"""Makes sure that outputs contain the text that is required: protected spans, and the terms of a glossary.

An output without it is searched for again, with a prefix up to the place where the text belongs and the text itself.
If that does not help, the text is inserted at that place. The place is where cross-attention is highest for the
corresponding source token.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from transduce.engines.engine import Engine, search_all
from transduce.models.alignment import cross_attention
from transduce.models.model import Model
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.text.symbols import SLOTS, escape, unescape
from transduce.text.tokenizer import Tokenizer
from transduce.translator.parts import Part, Required

_ROUNDS = 2
"""Number of searches with a prefix for one output."""
_BATCH = 64
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_SLOT = re.compile(f"([{''.join(SLOTS)}])")


def output_text(marked: str, part: Part) -> str:
    """The text of an output: slots are replaced by what they stand for, and unknown ones are left out."""
    originals = {one.marked: one.text for one in part.required if one.is_slot}
    for slot, original in originals.items():
        if _TAG.fullmatch(original):  # no space between a tag and its words if the source has none there
            if re.search(re.escape(original) + r"\S", part.text):
                marked = marked.replace(f"{slot} ", slot)
            if re.search(r"\S" + re.escape(original), part.text):
                marked = marked.replace(f" {slot}", slot)
    pieces = _SLOT.split(marked)
    return "".join(originals.get(piece, "") if piece in SLOTS else unescape(piece) for piece in pieces)


class Repairer:
    """Repairs outputs of one model."""

    def __init__(self, model: Model, tokenizer: Tokenizer, engine: Engine) -> None:
        self._model, self._tokenizer, self._engine = model, tokenizer, engine

    def repair(
        self, parts: Sequence[Part], results: Sequence[list[Hypothesis]], config: SearchConfig
    ) -> list[list[Hypothesis]]:
        """The results; hypotheses that do not contain what their part requires are replaced or changed."""
        repaired = [list(best) for best in results]
        best = replace(config, nbest=1, sample=False) if not config.sample else config
        for _ in range(_ROUNDS):
            failing = [i for i, part in enumerate(parts) if repaired[i] and self._missing(part, repaired[i][0].tokens)]
            if not failing:
                break
            retries = self._retries([parts[i] for i in failing], [repaired[i][0].tokens for i in failing])
            for i, found in zip(failing, search_all(self._engine, retries, best), strict=True):
                before = len(self._missing(parts[i], repaired[i][0].tokens))
                if found and len(self._missing(parts[i], found[0].tokens)) < before:
                    repaired[i][0] = found[0]
        for i, part in enumerate(parts):
            repaired[i] = [replace(one, tokens=self._placed(part, one.tokens)) for one in repaired[i]]
        return repaired

    def _missing(self, part: Part, tokens: Sequence[int]) -> list[Required]:
        if not part.required:
            return []
        marked = self._tokenizer.decode_all([tokens], marked=True)[0]
        folded = marked.casefold()
        return [
            one
            for one in part.required
            if (marked.count(one.marked) != 1 if one.is_slot else one.marked.casefold() not in folded)
        ]

    def _retries(self, parts: Sequence[Part], outputs: Sequence[list[int]]) -> list[Part]:
        """Jobs whose prefix ends with the first text that is missing."""
        retries = []
        for part, tokens, weights_TS in zip(parts, outputs, self._weights(parts, outputs), strict=True):
            one = self._missing(part, tokens)[0]
            tokens = self._without_slot(one, tokens)
            place = max(self._place(one, tokens, weights_TS), len(part.prefix))
            retries.append(replace(part, prefix=[*tokens[:place], *self._encoded(one)]))
        return retries

    def _placed(self, part: Part, tokens: list[int]) -> list[int]:
        """The output with everything that is required, each slot exactly once and no other slot."""
        wanted = {self._tokenizer.symbol_ids[one.marked] for one in part.required if one.is_slot}
        slots = {self._tokenizer.symbol_ids[slot] for slot in SLOTS if slot in self._tokenizer.symbol_ids}
        tokens = [token for token in tokens if token not in slots - wanted]
        while missing := self._missing(part, tokens):
            one = missing[0]
            (weights_TS,) = self._weights([part], [tokens])
            place = self._place(one, tokens, weights_TS)
            tokens = self._without_slot(one, tokens)
            place = min(place, len(tokens))
            tokens = [*tokens[:place], *self._encoded(one), *tokens[place:]]
            if self._missing(part, tokens) == missing:  # neighbouring pieces hide it, which cannot be helped
                break
        return tokens

    def _without_slot(self, one: Required, tokens: list[int]) -> list[int]:
        return [token for token in tokens if not (one.is_slot and token == self._tokenizer.symbol_ids[one.marked])]

    def _encoded(self, one: Required) -> list[int]:
        return self._tokenizer.encode_all([one.marked if one.is_slot else escape(one.text)], marked=True)[0]

    def _place(self, one: Required, tokens: Sequence[int], weights_TS: Tensor | None) -> int:
        """The index of the output token that is to follow the text: the start of a word."""
        if weights_TS is None:  # the model has no cross-attention
            return len(tokens)
        before = self._tokenizer.encode_all([one.before], marked=True)[0]
        token = min(len(before), weights_TS.shape[1] - 1)
        place = int(weights_TS[: len(tokens) + 1, token : token + 2].sum(dim=1).argmax())
        pieces = self._tokenizer.pieces(tokens)
        while 0 < place < len(tokens) and not pieces[place].startswith("▁"):
            place -= 1
        return place

    def _weights(self, parts: Sequence[Part], outputs: Sequence[list[int]]) -> list[Tensor | None]:
        """The cross-attention (T, S) of each output."""
        if self._model.alignment_attention is None:
            return [None] * len(parts)
        weights: list[Tensor | None] = []
        for start in range(0, len(parts), _BATCH):
            chunk = range(start, min(start + _BATCH, len(parts)))
            with torch.inference_mode():
                batch = cross_attention(self._model, [parts[i].tokens for i in chunk], [outputs[i] for i in chunk])
            weights += batch.cpu()
        return weights
