"""Text to text: the one object a Python user needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, overload

import torch

from transduce.config import build
from transduce.engines.choose import pick_engine
from transduce.engines.engine import Engine, Job, search_all
from transduce.engines.plain import PlainEngine
from transduce.errors import DataError
from transduce.models.alignment import cross_attention
from transduce.models.card import find_model
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.saved import load_model
from transduce.nn.device import pick_device
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.text.pieces import split_long
from transduce.text.tokenizer import Tokenizer

LongInput = Literal["split", "refuse"]

_ALIGNED_AT_ONCE = 64


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


class Translator:
    """A trained model, ready to translate."""

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizer: Tokenizer,
        *,
        config: SearchConfig | None = None,
        max_length: int = 256,
        engine: Engine | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._plain = PlainEngine(model)
        self.engine: Engine = engine or self._plain
        """What searches, where it can do so in the way asked for; `plain` does the rest."""
        self.config = config or SearchConfig()
        self.max_length = min(max_length, model.longest or max_length)
        """Source tokens the model takes at once."""

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", engine: str = "auto", **options: Any) -> "Translator":
        """Read a run (its finished model, else its newest checkpoint) or a model folder; options as in `translate`."""
        saved = load_model(find_model(Path(path)), pick_device(device))
        max_length = saved.facts.get("max_length", 256)
        config = replace(build(SearchConfig, saved.facts.get("search", {}), str(path)), **options)
        chosen = pick_engine(engine, saved.model)
        return cls(saved.model, saved.tokenizer, config=config, max_length=max_length, engine=chosen)

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
        lines, jobs = [], []
        for line, text in enumerate(texts):
            for job in self.jobs(text, prefixes[line] if prefixes else "", long, first_line + line):
                lines.append(line)
                jobs.append(job)
        outputs = self.translations(jobs, search_all(self.engine_for(config), jobs, config, first_line), align)
        found: list[list[list[Translation]]] = [[] for _ in texts]
        for line, output in zip(lines, outputs, strict=True):
            found[line].append(output)
        return [_join(parts) for parts in found]

    def source_tokens(self, text: str) -> list[str]:
        """The source tokens that alignments point to."""
        return self.tokenizer.pieces(self.tokenizer.encode(text))

    def engine_for(self, config: SearchConfig) -> Engine:
        """What searches in this way."""
        return self.engine if self.engine.takes(config) else self._plain

    def jobs(self, text: str, prefix: str = "", long: LongInput = "split", line: int = 1) -> list[Job]:
        """A text as one job, or as several where it is too long for one."""
        if not text.strip():
            return []
        tokens = self.tokenizer.encode(text)
        forced = self.tokenizer.encode(prefix) if prefix else []
        if len(tokens) <= self.max_length:
            return [Job(tokens, forced)]
        if long == "refuse":
            raise DataError(
                f"line {line} has {len(tokens):,} tokens, more than the {self.max_length} this model "
                "takes at once; shorten it or have it split"
            )
        parts = split_long(text, lambda part: len(self.tokenizer.encode(part)) <= self.max_length)
        return [Job(self.tokenizer.encode(part), [] if n else forced) for n, part in enumerate(parts)]

    def translations(self, jobs: list[Job], found: list[list[Hypothesis]], align: bool) -> Iterator[list[Translation]]:
        """The outputs of jobs as text."""
        alignments: Iterator[list[int] | None] = repeat(None)
        if align:
            pairs = [(job.tokens, one.tokens) for job, best in zip(jobs, found, strict=True) for one in best]
            alignments = self._alignments(pairs)
        for best in found:
            yield [self._translation(hypothesis, next(alignments)) for hypothesis in best]

    def _translation(self, found: Hypothesis, alignment: list[int] | None) -> Translation:
        text, tokens = self.tokenizer.decode(found.tokens), self.tokenizer.pieces(found.tokens)
        return Translation(text, found.score, found.log_prob, tokens, alignment)

    def _alignments(self, pairs: list[tuple[list[int], list[int]]]) -> Iterator[list[int]]:
        """The source token each output token looks at most; the end markers stay out of it."""
        for start in range(0, len(pairs), _ALIGNED_AT_ONCE):
            some = pairs[start : start + _ALIGNED_AT_ONCE]
            weights_BTS = cross_attention(self.model, [src for src, _ in some], [out for _, out in some])
            for weights_TS, (source, output) in zip(weights_BTS, some, strict=True):
                yield weights_TS[: len(output), : len(source)].argmax(-1).tolist()

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
