"""Text to text: the one object a Python user needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, overload

import torch

from transduce.config import build
from transduce.errors import DataError
from transduce.models.alignment import cross_attention
from transduce.models.card import find_model
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.saved import load_model
from transduce.nn.device import pick_device
from transduce.nn.segments import pack_tokens
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig, search
from transduce.text.pieces import split_long
from transduce.text.tokenizer import EOS, Tokenizer

LongInput = Literal["split", "refuse"]


@dataclass(frozen=True)
class Translation:
    """One output for one input."""

    text: str
    score: float
    """What outputs are ranked by: log-probability over the length penalty."""
    log_prob: float
    tokens: list[str]
    alignment: list[int] | None = None
    """For each token, the source token that cross-attention weighs most; only where asked for."""


@dataclass(frozen=True)
class _Piece:
    """A part of an input that is translated at once."""

    line: int
    tokens: list[int]
    prefix: list[int]


class Translator:
    """A trained model, ready to translate."""

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizer: Tokenizer,
        *,
        config: SearchConfig | None = None,
        max_length: int = 256,
        batch_tokens: int = 4096,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.config = config or SearchConfig()
        self.max_length = min(max_length, model.longest or max_length)
        """Source tokens the model takes at once."""
        self.batch_tokens = batch_tokens
        """Source tokens, times the beam, that are worked on at once."""

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", **options: Any) -> "Translator":
        """Read a run (its finished model, else its newest checkpoint) or a model folder; options as in `translate`."""
        saved = load_model(find_model(Path(path)), pick_device(device))
        max_length = saved.facts.get("max_length", 256)
        config = replace(build(SearchConfig, saved.facts.get("search", {}), str(path)), **options)
        return cls(saved.model, saved.tokenizer, config=config, max_length=max_length)

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...
    @overload
    def translate(self, texts: Sequence[str], **options: Any) -> list[str]: ...
    def translate(self, texts: str | Sequence[str], **options: Any) -> str | list[str]:
        """The best translation of a text, or of each of several; options are SearchConfig's (beam=1 is greedy)."""
        if isinstance(texts, str):
            return self.hypotheses([texts], **options)[0][0].text
        return [best[0].text for best in self.hypotheses(texts, **options)]

    def hypotheses(
        self,
        texts: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        align: bool = False,
        long: LongInput = "split",
        first_line: int = 1,
        **options: Any,
    ) -> list[list[Translation]]:
        """The n best translations of each text with scores, in the order of the texts.

        `prefixes` are beginnings the outputs must have. A text beyond the model's length is translated in pieces, or
        refused with its line number, counted from `first_line`. An empty text stays empty.
        """
        config = replace(self.config, **options)
        pieces = [
            piece
            for line, text in enumerate(texts)
            for piece in self._pieces(line, text, prefixes[line] if prefixes else "", long, first_line)
        ]
        found: dict[int, list[list[Translation]]] = {line: [] for line in range(len(texts))}
        order = sorted(range(len(pieces)), key=lambda i: -len(pieces[i].tokens))
        outputs: list[list[Translation]] = [[] for _ in pieces]
        for batch in self._batches(pieces, order, config):
            seeded = replace(config, seed=(config.seed + 1_000_003 * (first_line + batch[0])) % 2**31)
            for i, output in zip(batch, self._translate([pieces[i] for i in batch], seeded, align), strict=True):
                outputs[i] = output
        for piece, output in zip(pieces, outputs, strict=True):
            found[piece.line].append(output)
        return [_join(parts) for parts in found.values()]

    def source_tokens(self, text: str) -> list[str]:
        """The source tokens that alignments point to."""
        return self.tokenizer.pieces(self.tokenizer.encode(text))

    def _pieces(self, line: int, text: str, prefix: str, long: LongInput, first_line: int) -> list[_Piece]:
        if not text.strip():
            return []
        tokens = self.tokenizer.encode(text)
        forced = self.tokenizer.encode(prefix) if prefix else []
        if len(tokens) <= self.max_length:
            return [_Piece(line, tokens, forced)]
        if long == "refuse":
            raise DataError(
                f"line {first_line + line} has {len(tokens):,} tokens, more than the {self.max_length} this model "
                "takes at once; shorten it or have it split"
            )
        parts = split_long(text, lambda part: len(self.tokenizer.encode(part)) <= self.max_length)
        return [_Piece(line, self.tokenizer.encode(part), [] if n else forced) for n, part in enumerate(parts)]

    def _batches(self, pieces: list[_Piece], order: list[int], config: SearchConfig) -> list[list[int]]:
        """Pieces of similar length together, as many as the token budget allows."""
        rows = config.nbest if config.sample else config.beam
        batches: list[list[int]] = []
        tokens = 0
        for i in order:
            cost = (len(pieces[i].tokens) + 1) * rows
            if not batches or tokens + cost > self.batch_tokens:
                batches.append([])
                tokens = 0
            batches[-1].append(i)
            tokens += cost
        return batches

    def _translate(self, pieces: list[_Piece], config: SearchConfig, align: bool) -> list[list[Translation]]:
        sources = [[*piece.tokens, EOS] for piece in pieces]
        prefixes = [piece.prefix for piece in pieces] if any(piece.prefix for piece in pieces) else None
        lengths = [len(source) for source in sources]
        found = search(
            self.model, pack_tokens(sources, self.device), lengths, config, prefixes, self.model.longest, self.device
        )
        alignments: Iterator[list[int] | None] = repeat(None)
        if align:
            sources = [piece.tokens for piece, best in zip(pieces, found, strict=True) for _ in best]
            alignments = iter(self._align(sources, [hypothesis.tokens for best in found for hypothesis in best]))
        return [[self._translation(hypothesis, next(alignments)) for hypothesis in best] for best in found]

    def _translation(self, found: Hypothesis, alignment: list[int] | None) -> Translation:
        text, tokens = self.tokenizer.decode(found.tokens), self.tokenizer.pieces(found.tokens)
        return Translation(text, found.score, found.log_prob, tokens, alignment)

    def _align(self, sources: list[list[int]], outputs: list[list[int]]) -> list[list[int]]:
        """The source token each output token looks at most; the end markers stay out of it."""
        weights_BTS = cross_attention(self.model, sources, outputs)
        return [
            weights_BTS[i, : len(output), : len(source)].argmax(-1).tolist()
            for i, (source, output) in enumerate(zip(sources, outputs, strict=True))
        ]

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self.model.embedding.weight_VD.device


def _join(parts: list[list[Translation]]) -> list[Translation]:
    """The translations of a line from those of its pieces: best with best, second with second."""
    if not parts:
        return [Translation("", 0.0, 0.0, [])]
    if len(parts) == 1:
        return parts[0]
    return [
        Translation(
            text=" ".join(piece.text for piece in rank),
            score=sum(piece.score for piece in rank),
            log_prob=sum(piece.log_prob for piece in rank),
            tokens=[token for piece in rank for token in piece.tokens],
        )
        for rank in zip(*parts, strict=False)
    ]
