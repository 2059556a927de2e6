"""Text to text: the one object a Python user needs."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, count, islice, repeat
from pathlib import Path
from typing import Any, Literal, overload

import torch

from transduce.config import build
from transduce.engines.choose import pick_engine
from transduce.engines.engine import Engine, Job
from transduce.engines.plain import PlainEngine
from transduce.errors import DataError, ModelError
from transduce.models.alignment import cross_attention
from transduce.models.card import find_model
from transduce.models.model import Model
from transduce.models.saved import load_model
from transduce.nn.device import pick_device
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig
from transduce.text.chunks import split_long
from transduce.text.sentences import split_sentences
from transduce.text.tokenizer import Tokenizer

LongInput = Literal["split", "refuse"]

_ALIGNED_AT_ONCE = 64
_AHEAD_ON_GPU, _AHEAD_ON_CPU = 8192, 256
"""Texts that are read ahead: as many as it takes to be no slower than with more."""


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


@dataclass
class _Line:
    """A text on its way through the model, in one part or several."""

    jobs: list[Job]
    found: dict[int, list[Hypothesis]] = field(default_factory=dict)
    """By part."""

    @property
    def outputs(self) -> list[list[Hypothesis]]:
        """Of each part, in order."""
        return [self.found[part] for part in range(len(self.jobs))]


class Translator:
    """A trained model, ready to translate."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        config: SearchConfig | None = None,
        max_length: int = 256,
        engine: Engine | None = None,
        by_sentence: bool = False,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._plain = PlainEngine(model)
        self.engine: Engine = engine or self._plain
        """What searches, where it can do so in the way asked for; `plain` does the rest."""
        self.config = config or SearchConfig()
        self.max_length = min(max_length, model.longest or max_length)
        """Source tokens the model takes at once."""
        self.by_sentence = by_sentence
        """Whether the model knows single sentences alone: a text of several is translated one by one."""

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        device: str = "auto",
        engine: str = "auto",
        threads: int | None = None,
        batch_tokens: int | None = None,
        **options: Any,
    ) -> "Translator":
        """Read a run (its finished model, else its newest checkpoint) or a model folder; options as in `translate`.

        Without a path it is the bundled model, English to German. `engine`: auto (the fastest there is), gpu, native
        (CPU, 8-bit) or plain; `threads` of the CPU and `batch_tokens` worked on at once are chosen automatically unless
        given.
        """
        folder = find_model(None if path is None else Path(path))
        saved = load_model(folder, pick_device(device))
        max_length = saved.facts.get("max_length", 256)
        config = replace(build(SearchConfig, saved.facts.get("search", {}), str(folder)), **options)
        chosen = pick_engine(engine, saved.model, threads, batch_tokens)
        by_sentence = bool(saved.facts.get("by_sentence"))
        return cls(
            saved.model, saved.tokenizer, config=config, max_length=max_length, engine=chosen, by_sentence=by_sentence
        )

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
        if prefixes is not None and len(prefixes) != len(texts):
            raise DataError(f"{len(texts):,} texts but {len(prefixes):,} prefixes; give one for each text")
        return list(self.stream(texts, prefixes=prefixes, align=align, long=long, first_line=first_line, **options))

    def stream(
        self,
        texts: Iterable[str],
        *,
        prefixes: Iterable[str] | None = None,
        align: bool = False,
        long: LongInput = "split",
        first_line: int = 1,
        window: int | None = None,
        **options: Any,
    ) -> Iterator[list[Translation]]:
        """The same one by one, for any number of texts: at most twice `window` of them are in memory.

        As outputs keep their order, the first may wait for so many. There may be more prefixes than texts.
        """
        window = window or (_AHEAD_ON_GPU if self.device.type == "cuda" else _AHEAD_ON_CPU)
        config = replace(self.config, **options)
        session = self.engine_for(config).begin(config)
        if isinstance(texts, str):
            raise DataError("texts must be a list of texts; for a single one there is translate")
        beginnings = repeat("") if prefixes is None else prefixes
        source = enumerate(zip(texts, beginnings, strict=False), start=first_line)
        lines: deque[_Line] = deque()  # read but not yet given back
        place_of: dict[int, tuple[_Line, int]] = {}  # of each job, by its key: its line, and which part of it
        keys, more = count(first_line), True
        while more or lines:
            if more and session.waiting <= window // 2 and len(lines) <= window:
                read = list(islice(source, window))
                more = bool(read)
                tokens = self.tokenizer.encode_all([text for _, (text, _) in read], threads=-1)
                jobs: list[tuple[int, Job]] = []
                for (number, (text, prefix)), ids in zip(read, tokens, strict=True):
                    lines.append(_Line(self._jobs(text, ids, prefix, long, number)))
                    for part, job in enumerate(lines[-1].jobs):
                        key = next(keys)
                        place_of[key] = (lines[-1], part)
                        jobs.append((key, job))
                session.add(sorted(jobs, key=lambda item: -len(item[1].tokens)))
            for key, hypotheses in session.step() if session.busy else ():
                if not hypotheses:
                    raise ModelError("the model's scores are not finite numbers; try --engine plain")
                line, part = place_of.pop(key)
                line.found[part] = hypotheses
            done = []
            while lines and len(lines[0].found) == len(lines[0].jobs):
                done.append(lines.popleft())
            outputs = self.translations(
                [job for line in done for job in line.jobs], [best for line in done for best in line.outputs], align
            )
            for line in done:
                yield _best_with_best(line.jobs, [next(outputs) for _ in line.jobs])

    def source_tokens(self, text: str) -> list[str]:
        """The source tokens that alignments point to."""
        return self.tokenizer.pieces([token for job in self.jobs(text) for token in job.tokens])

    def engine_for(self, config: SearchConfig) -> Engine:
        """What searches in this way: `engine`, or `plain` where that cannot."""
        return self.engine if self.engine.supports(self.model, config) is None else self._plain

    def jobs(self, text: str, prefix: str = "", long: LongInput = "split", line: int = 1) -> list[Job]:
        """A text as one job, or as several where it is too long for one."""
        return self._jobs(text, self.tokenizer.encode(text), prefix, long, line)

    def _jobs(self, text: str, tokens: list[int], prefix: str, long: LongInput, line: int) -> list[Job]:
        if not text.strip():
            return []
        forced = self.tokenizer.encode(prefix) if prefix else []
        if self.model.longest is not None and len(forced) > self.model.longest:
            raise DataError(
                f"line {line} has a prefix of {len(forced):,} tokens, more than the {self.model.longest} this model "
                "can say; shorten it"
            )
        sentences = split_sentences(text) if self.by_sentence else [text]
        if len(tokens) <= self.max_length and len(sentences) == 1:
            return [Job(tokens, forced)]
        if long == "refuse" and len(tokens) > self.max_length:
            raise DataError(
                f"line {line} has {len(tokens):,} tokens, more than the {self.max_length} this model "
                "takes at once; shorten it or have it split"
            )
        parts = [part for sentence in sentences for part in split_long(sentence, self._fits)]
        return [Job(self.tokenizer.encode(part), [] if n else forced) for n, part in enumerate(parts)]

    def _fits(self, text: str) -> bool:
        return len(self.tokenizer.encode(text)) <= self.max_length

    def translations(self, jobs: list[Job], found: list[list[Hypothesis]], align: bool) -> Iterator[list[Translation]]:
        """The outputs of jobs as text."""
        alignments: Iterator[list[int] | None] = repeat(None)
        if align:
            pairs = [(job.tokens, one.tokens) for job, best in zip(jobs, found, strict=True) for one in best]
            alignments = self._alignments(pairs)
        outputs = [one.tokens for best in found for one in best]
        texts = iter(self.tokenizer.decode_all(outputs, threads=-1) if outputs else [])
        for best in found:
            yield [
                Translation(next(texts), one.score, one.log_prob, self.tokenizer.pieces(one.tokens), next(alignments))
                for one in best
            ]

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
        return self.model.device


def _best_with_best(jobs: list[Job], parts: list[list[Translation]]) -> list[Translation]:
    """The translations of a line from those of its parts: best with best, second with second."""
    if not parts:
        return [Translation("", 0.0, 0.0, [])]
    return [join(" ".join(part.text for part in rank), jobs, rank) for rank in zip(*parts, strict=False)]


def join(text: str, jobs: Sequence[Job], parts: Sequence[Translation]) -> Translation:
    """The translation of a text whose parts were translated as these jobs; their source tokens lie end to end."""
    starts = accumulate((len(job.tokens) for job in jobs), initial=0)
    aligned = [
        [start + place for place in part.alignment]
        for start, part in zip(starts, parts, strict=False)
        if part.alignment is not None
    ]
    return Translation(
        text=text,
        score=sum(part.score for part in parts),
        log_prob=sum(part.log_prob for part in parts),
        tokens=[token for part in parts for token in part.tokens],
        alignment=list(chain.from_iterable(aligned)) if len(aligned) == len(parts) else None,
    )
