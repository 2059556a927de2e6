"""The translator: text in, text out."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, count, islice, repeat
from pathlib import Path
from typing import Literal, Unpack, overload

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
from transduce.search.options import SearchConfig, SearchOptions
from transduce.text.chunks import split_long
from transduce.text.languages import Direction, choose_target, mark
from transduce.text.sentences import split_sentences
from transduce.text.symbols import language_tag
from transduce.text.tokenizer import Tokenizer

LongInput = Literal["split", "refuse"]
Target = str | Sequence[str | None] | None
"""The target language of all texts, or of each; None if the model has only one."""

_ALIGNMENT_BATCH = 64
_AHEAD_ON_GPU, _AHEAD_ON_CPU = 8192, 256
"""Texts that are read ahead; reading more does not increase throughput."""


@dataclass(frozen=True)
class Translation:
    """One output for one input."""

    text: str
    score: float
    """Ranking score: log-probability divided by the length penalty."""
    log_prob: float
    tokens: list[str]
    alignment: list[int] | None = None
    """For each token, the index of the source token with the highest cross-attention weight; None unless requested."""


@dataclass
class _Line:
    """A text that is being translated, as one job or several."""

    jobs: list[Job]
    results: dict[int, list[Hypothesis]] = field(default_factory=dict)
    """Hypotheses of the finished jobs, by index of the job."""

    @property
    def outputs(self) -> list[list[Hypothesis]]:
        """Hypotheses of each job, in order."""
        return [self.results[part] for part in range(len(self.jobs))]


class Translator:
    """A trained model, ready to translate."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        config: SearchConfig | None = None,
        max_source_length: int = 256,
        engine: Engine | None = None,
        by_sentence: bool = False,
        directions: Sequence[Direction] = (),
        tagged: bool = False,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        if reason := PlainEngine.supports(model, config or SearchConfig()):
            raise ModelError(reason)
        self._plain = PlainEngine(model)
        self.engine: Engine = engine or self._plain
        """The engine that runs the search; `plain` runs instead if this one does not support the options."""
        self.config = config or SearchConfig()
        self.max_source_length = max_source_length if model.longest is None else min(max_source_length, model.longest)
        """Maximum number of source tokens in one forward pass; longer texts are split."""
        self.by_sentence = by_sentence
        """Whether the model was trained on single sentences only: a text is then translated sentence by sentence."""
        self.directions = list(directions)
        """Source and target language of each direction of the model; empty if they are not known."""
        self.tagged = tagged
        """Whether a tag selects the target language, as in multilingual models."""
        if tagged and not all(language_tag(target) in tokenizer.symbol_ids for _, target in directions):
            raise ModelError("the vocabulary of this multilingual model does not have the tags of its languages")

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        device: str = "auto",
        engine: str = "auto",
        threads: int | None = None,
        batch_tokens: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> "Translator":
        """Load a model folder or a run (its finished model, otherwise its newest checkpoint).

        Without a path, load the bundled model, English to German. `engine` is auto (the fastest available), gpu,
        native (CPU, 8-bit) or plain. `threads` (of the CPU) and `batch_tokens` (source tokens times beam in one batch)
        are chosen automatically by default. `options` are the fields of SearchConfig; they become the defaults of
        every translation.
        """
        folder = find_model(None if path is None else Path(path))
        saved = load_model(folder, pick_device(device))
        config = replace(build(SearchConfig, saved.facts.get("search", {}), str(folder)), **options)
        chosen = pick_engine(engine, saved.model, threads, batch_tokens)
        return cls(
            saved.model,
            saved.tokenizer,
            config=config,
            max_source_length=saved.facts.get("max_length", 256),
            engine=chosen,
            by_sentence=bool(saved.facts.get("by_sentence")),
            directions=[(source, target) for source, target in saved.facts.get("directions", [])],
            tagged=bool(saved.facts.get("tagged")),
        )

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, texts: str, *, to: str | None = None, **options: Unpack[SearchOptions]
    ) -> str: ...
    @overload
    def translate(self, texts: Sequence[str], *, to: Target = None, **options: Unpack[SearchOptions]) -> list[str]: ...
    def translate(
        self, texts: str | Sequence[str], *, to: Target = None, **options: Unpack[SearchOptions]
    ) -> str | list[str]:
        """Translate one text, or each text of a list.

        `to` is the target language, which a model with several target languages requires; a list names one for each
        text. `options` are the fields of SearchConfig (beam=1 is greedy).
        """
        if isinstance(texts, str):
            return self.hypotheses([texts], to=to, **options)[0][0].text
        return [best[0].text for best in self.hypotheses(texts, to=to, **options)]

    def hypotheses(
        self,
        texts: Sequence[str],
        *,
        to: Target = None,
        prefixes: Sequence[str] | None = None,
        align: bool = False,
        long: LongInput = "split",
        first_line: int = 1,
        **options: Unpack[SearchOptions],
    ) -> list[list[Translation]]:
        """Translate each text of a list; return its n best translations with scores, best first.

        `to` is as in `translate`. Each output starts with its text's prefix. A text longer than `max_source_length` is
        split and translated in parts, or, with long="refuse", raises a DataError with its line number, counted from
        `first_line`. The translation of an empty text is empty.
        """
        if prefixes is not None and len(prefixes) != len(texts):
            raise DataError(f"{len(texts):,} texts but {len(prefixes):,} prefixes; give one for each text")
        if to is not None and not isinstance(to, str) and len(to) != len(texts):
            raise DataError(f"{len(texts):,} texts but {len(to):,} target languages; give one for each text")
        return list(
            self.stream(texts, to=to, prefixes=prefixes, align=align, long=long, first_line=first_line, **options)
        )

    def stream(
        self,
        texts: Iterable[str],
        *,
        to: str | Iterable[str | None] | None = None,
        prefixes: Iterable[str] | None = None,
        align: bool = False,
        long: LongInput = "split",
        first_line: int = 1,
        window: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> Iterator[list[Translation]]:
        """Like `hypotheses`, but yield results one by one; at most 2 * `window` texts are in memory at a time.

        Results keep the order of the texts. There may be more prefixes than texts.
        """
        window = window or (_AHEAD_ON_GPU if self.device.type == "cuda" else _AHEAD_ON_CPU)
        config = replace(self.config, **options)
        session = self.engine_for(config).start_session(config)
        if isinstance(texts, str):
            raise DataError("texts must be a list of texts; use translate for a single text")
        line_prefixes = repeat("") if prefixes is None else prefixes
        targets = repeat(self.target(to)) if to is None or isinstance(to, str) else map(self.target, to)
        source = enumerate(zip(texts, line_prefixes, targets, strict=False), start=first_line)
        lines: deque[_Line] = deque()  # read but not yet yielded
        origin: dict[int, tuple[_Line, int]] = {}  # the line and the part of each job, by its key
        keys, more = count(first_line), True
        while more or lines:
            if more and session.waiting <= window // 2 and len(lines) <= window:
                read = list(islice(source, window))
                more = bool(read)
                marked = [mark(text, target) for _, (text, _, target) in read]
                tokens = self.tokenizer.encode_all(marked, threads=-1, marked=True)
                jobs: list[tuple[int, Job]] = []
                for (number, (text, prefix, target)), ids in zip(read, tokens, strict=True):
                    lines.append(_Line(self._jobs(text, ids, prefix, long, number, target)))
                    for part, job in enumerate(lines[-1].jobs):
                        key = next(keys)
                        origin[key] = (lines[-1], part)
                        jobs.append((key, job))
                session.add(sorted(jobs, key=lambda item: -len(item[1].tokens)))
            for key, hypotheses in session.step() if session.busy else ():
                if not hypotheses:
                    raise ModelError("the model's scores are not finite numbers; try --engine plain")
                line, part = origin.pop(key)
                line.results[part] = hypotheses
            done = []
            while lines and len(lines[0].results) == len(lines[0].jobs):
                done.append(lines.popleft())
            outputs = self.translations(
                [job for line in done for job in line.jobs], [best for line in done for best in line.outputs], align
            )
            for line in done:
                yield _join_by_rank(line.jobs, [next(outputs) for _ in line.jobs])

    def source_tokens(self, text: str, to: str | None = None) -> list[str]:
        """The source tokens that the indices of an alignment refer to."""
        return self.tokenizer.pieces([token for job in self.jobs(text, to=to) for token in job.tokens])

    def target(self, to: str | None, source: str | None = None) -> str | None:
        """The language whose tag begins every source, for this request; None if the model has no tags.

        Raises a DataError if the model does not translate to that language (from `source`), or if it has several target
        languages and none is requested.
        """
        if not self.tagged and to is None and source is None:
            return None
        chosen = choose_target(self.directions, source, to)
        return chosen if self.tagged else None

    def engine_for(self, config: SearchConfig) -> Engine:
        """The engine that runs this search: `engine` if it supports the options, otherwise `plain`."""
        return self.engine if self.engine.supports(self.model, config) is None else self._plain

    def jobs(
        self, text: str, prefix: str = "", long: LongInput = "split", line: int = 1, to: str | None = None
    ) -> list[Job]:
        """A text as one job, or as several if it is longer than `max_source_length`."""
        target = self.target(to)
        return self._jobs(text, self.encode_source(text, target), prefix, long, line, target)

    def _jobs(
        self, text: str, tokens: list[int], prefix: str, long: LongInput, line: int, target: str | None
    ) -> list[Job]:
        if not text.strip():
            return []
        forced = self.tokenizer.encode(prefix) if prefix else []
        if self.model.longest is not None and len(forced) > self.model.longest:
            raise DataError(
                f"line {line} has a prefix of {len(forced):,} tokens, more than the {self.model.longest} this model "
                "can generate; shorten it"
            )
        sentences = [part.text for part in split_sentences(text)] if self.by_sentence else [text]
        if len(tokens) <= self.max_source_length and len(sentences) == 1:
            return [Job(tokens, forced)]
        if long == "refuse" and len(tokens) > self.max_source_length:
            raise DataError(
                f"line {line} has {len(tokens):,} tokens, more than the {self.max_source_length} this model "
                "takes at once; shorten it or split it with long=split"
            )

        def fits(text: str) -> bool:
            return len(self.encode_source(text, target)) <= self.max_source_length

        parts = [part.text for sentence in sentences for part in split_long(sentence, fits)]
        return [Job(self.encode_source(part, target), [] if n else forced) for n, part in enumerate(parts)]

    def encode_source(self, text: str, target: str | None) -> list[int]:
        """The source tokens of a text, with the tag of the target language."""
        return self.tokenizer.encode_all([mark(text, target)], marked=True)[0]

    def translations(
        self, jobs: list[Job], results: list[list[Hypothesis]], align: bool
    ) -> Iterator[list[Translation]]:
        """Decode the hypotheses of jobs to text."""
        alignments: Iterator[list[int] | None] = repeat(None)
        if align:
            pairs = [(job.tokens, one.tokens) for job, best in zip(jobs, results, strict=True) for one in best]
            alignments = self._alignments(pairs)
        outputs = [one.tokens for best in results for one in best]
        texts = iter(self.tokenizer.decode_all(outputs, threads=-1) if outputs else [])
        for best in results:
            yield [
                Translation(next(texts), one.score, one.log_prob, self.tokenizer.pieces(one.tokens), next(alignments))
                for one in best
            ]

    def _alignments(self, pairs: list[tuple[list[int], list[int]]]) -> Iterator[list[int]]:
        """The index of the source token with the highest weight for each output token, without end markers."""
        for start in range(0, len(pairs), _ALIGNMENT_BATCH):
            chunk = pairs[start : start + _ALIGNMENT_BATCH]
            weights_BTS = cross_attention(self.model, [src for src, _ in chunk], [out for _, out in chunk])
            for weights_TS, (source, output) in zip(weights_BTS, chunk, strict=True):
                yield weights_TS[: len(output), : len(source)].argmax(-1).tolist()

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.model.device


def _join_by_rank(jobs: list[Job], parts: list[list[Translation]]) -> list[Translation]:
    """Join the translations of a line's parts by rank: best with best, second with second."""
    if not parts:
        return [Translation("", 0.0, 0.0, [])]
    return [join(" ".join(part.text for part in rank), jobs, rank) for rank in zip(*parts, strict=False)]


def join(text: str, jobs: Sequence[Job], parts: Sequence[Translation]) -> Translation:
    """Join the translations of a text's parts; alignments refer to the concatenated source tokens of the jobs."""
    starts = accumulate((len(job.tokens) for job in jobs), initial=0)
    aligned = [
        [start + index for index in part.alignment]
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
