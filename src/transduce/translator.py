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
from transduce.models.ensemble import load_ensemble
from transduce.models.likelihood import token_log_probs
from transduce.models.model import Model
from transduce.models.saved import load_model
from transduce.nn.device import pick_device
from transduce.search.decoder import Hypothesis
from transduce.search.options import SearchConfig, SearchOptions
from transduce.text.chunks import split_long
from transduce.text.sentences import split_sentences
from transduce.text.tokenizer import EOS, Tokenizer

LongInput = Literal["split", "refuse"]

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


@dataclass(frozen=True)
class PairScore:
    """The log-probability of a given translation."""

    log_prob: float
    """The sum over the tokens and the end marker."""
    tokens: list[str]
    """The tokens of the translation and the end marker."""
    token_log_probs: list[float]

    @property
    def per_token(self) -> float:
        """`log_prob` divided by the number of tokens."""
        return self.log_prob / len(self.tokens)


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

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path] | None = None,
        *,
        device: str = "auto",
        engine: str = "auto",
        threads: int | None = None,
        batch_tokens: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> "Translator":
        """Load a model folder or a run (its finished model, otherwise its newest checkpoint).

        Several paths are an ensemble: the log-probability of a token is the mean over the models, which must have the
        same vocabulary. Without a path, load the bundled model, English to German.

        `engine` is auto (the fastest available), gpu, native (CPU, 8-bit) or plain. `threads` (of the CPU) and
        `batch_tokens` (source tokens times beam in one batch) are chosen automatically by default. `options` are the
        fields of SearchConfig; they become the defaults of every translation.
        """
        paths = [path] if path is None or isinstance(path, str | Path) else path
        folders = [find_model(None if one is None else Path(one)) for one in paths]
        at = pick_device(device)
        saved = load_model(folders[0], at) if len(folders) == 1 else load_ensemble(folders, at)
        config = replace(build(SearchConfig, saved.facts.get("search", {}), str(folders[0])), **options)
        chosen = pick_engine(engine, saved.model, threads, batch_tokens)
        return cls(
            saved.model,
            saved.tokenizer,
            config=config,
            max_source_length=saved.facts.get("max_length", 256),
            engine=chosen,
            by_sentence=bool(saved.facts.get("by_sentence")),
        )

    @overload
    def translate(self, texts: str, **options: Unpack[SearchOptions]) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, texts: Sequence[str], **options: Unpack[SearchOptions]) -> list[str]: ...
    def translate(self, texts: str | Sequence[str], **options: Unpack[SearchOptions]) -> str | list[str]:
        """Translate one text, or each text of a list; `options` are the fields of SearchConfig (beam=1 is greedy)."""
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
        **options: Unpack[SearchOptions],
    ) -> list[list[Translation]]:
        """Translate each text of a list; return its n best translations with scores, best first.

        Each output starts with its text's prefix. A text longer than `max_source_length` is split and translated in
        parts, or, with long="refuse", raises a DataError with its line number, counted from `first_line`. The
        translation of an empty text is empty.
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
        source = enumerate(zip(texts, line_prefixes, strict=False), start=first_line)
        lines: deque[_Line] = deque()  # read but not yet yielded
        origin: dict[int, tuple[_Line, int]] = {}  # the line and the part of each job, by its key
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

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        """The log-probability of each target given its source; a pair is scored as a whole, however long it is."""
        if len(sources) != len(targets):
            raise DataError(f"{len(sources):,} sources but {len(targets):,} targets; give one for each source")
        pairs = list(zip(*(self.tokenizer.encode_all(side, threads=-1) for side in (sources, targets)), strict=True))
        longest = self.model.longest
        for texts, sides in zip(zip(sources, targets, strict=True), pairs, strict=True):
            for text, tokens in zip(texts, sides, strict=True):
                if longest is not None and len(tokens) > longest:
                    raise DataError(
                        f"the text {text!r:.60} has {len(tokens):,} tokens, more than the {longest} this model takes; "
                        "shorten it"
                    )
        return [
            PairScore(sum(log_probs), self.tokenizer.pieces([*target, EOS]), log_probs)
            for (_, target), log_probs in zip(pairs, token_log_probs(self.model, pairs), strict=True)
        ]

    def source_tokens(self, text: str) -> list[str]:
        """The source tokens that the indices of an alignment refer to."""
        return self.tokenizer.pieces([token for job in self.jobs(text) for token in job.tokens])

    def engine_for(self, config: SearchConfig) -> Engine:
        """The engine that runs this search: `engine` if it supports the options, otherwise `plain`."""
        return self.engine if self.engine.supports(self.model, config) is None else self._plain

    def jobs(self, text: str, prefix: str = "", long: LongInput = "split", line: int = 1) -> list[Job]:
        """A text as one job, or as several if it is longer than `max_source_length`."""
        return self._jobs(text, self.tokenizer.encode(text), prefix, long, line)

    def _jobs(self, text: str, tokens: list[int], prefix: str, long: LongInput, line: int) -> list[Job]:
        if not text.strip():
            return []
        forced = self.tokenizer.encode(prefix) if prefix else []
        if self.model.longest is not None and len(forced) > self.model.longest:
            raise DataError(
                f"line {line} has a prefix of {len(forced):,} tokens, more than the {self.model.longest} this model "
                "can generate; shorten it"
            )
        sentences = split_sentences(text) if self.by_sentence else [text]
        if len(tokens) <= self.max_source_length and len(sentences) == 1:
            return [Job(tokens, forced)]
        if long == "refuse" and len(tokens) > self.max_source_length:
            raise DataError(
                f"line {line} has {len(tokens):,} tokens, more than the {self.max_source_length} this model "
                "takes at once; shorten it or split it with long=split"
            )
        parts = [part for sentence in sentences for part in split_long(sentence, self._fits)]
        return [Job(self.tokenizer.encode(part), [] if n else forced) for n, part in enumerate(parts)]

    def _fits(self, text: str) -> bool:
        return len(self.tokenizer.encode(text)) <= self.max_source_length

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
