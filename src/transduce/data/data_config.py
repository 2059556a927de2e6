"""The text to train on: its settings, its parts (one for each direction), and how often each part occurs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from transduce.config import require
from transduce.files.languages import Direction, TargetLanguage, is_language_code, parse_direction
from transduce.files.pairs import Corpus, ReadReport
from transduce.files.readers import Reader
from transduce.tokenizers.symbols import language_tag


def require_entries(**corpora: Corpus) -> None:
    """Raise a ConfigError if an entry of a corpus, by the name of its setting, is not one file or a pair of files."""
    for name, corpus in corpora.items():
        for files in corpus:
            require(len(files) in (1, 2), f"{name}: an entry is one file or a pair of files, not {len(files)} files")
            require(all(files), f"{name}: the name of a file is empty")


@dataclass(frozen=True, kw_only=True)
class DirectionConfig:
    """The text of one direction of a multilingual model."""

    train: tuple[tuple[str, ...], ...] = ()
    """Training pairs, as in data.train."""
    valid: tuple[tuple[str, ...], ...] = ()
    """Validation pairs, likewise."""
    replay: tuple[tuple[str, ...], ...] = ()
    """Old training pairs to mix into fine-tuning, likewise."""
    reverse: bool = False
    """Read the second side of every pair as the source."""
    back_translated: tuple[tuple[str, ...], ...] = ()
    """Back-translated pairs, as in data.back_translated."""

    def __post_init__(self) -> None:
        require_entries(train=self.train, valid=self.valid, replay=self.replay, back_translated=self.back_translated)


@dataclass(frozen=True)
class CorpusPart:
    """The text of one direction, and how it is read."""

    train: Corpus
    valid: Corpus
    reverse: bool
    name: str = ""
    """The direction, e.g. en-de, of a multilingual model."""
    target: str | None = None
    """The language whose tag begins every source; None if the model has a single direction and no tags."""
    back_translated: Corpus = ()
    """Training text whose sources are back-translations; `reverse` does not apply to it."""
    is_replay: bool = False
    """Whether it is old text that is mixed into fine-tuning."""
    context: bool = False
    """Whether sources are read with the one before."""
    source: str | None = None
    """The language whose tag follows that of the target; None without such tags (data.source_tags)."""

    def read(self, reader: Reader, corpus: Corpus, report: ReadReport, *, reverse: bool) -> Iterator[tuple[Any, ...]]:
        """The examples of a corpus, with their contexts if the text has them."""
        return reader.read(corpus, report, reverse=reverse, **({"context": True} if self.context else {}))

    @property
    def tagged_target(self) -> str | None:
        """The language, or both, whose tags begin every source."""
        return TargetLanguage(self.target, self.source) if self.target and self.source else self.target

    @property
    def all_train(self) -> Corpus:
        return [*self.train, *self.back_translated]

    def read_train(self, reader: Reader, report: ReadReport) -> Iterator[tuple[bool, tuple[Any, ...]]]:
        """The training examples in order, each with whether its source is a back-translation."""
        for is_back_translation, corpus in ((False, self.train), (True, self.back_translated)):
            found = ReadReport()
            reverse = self.reverse and not is_back_translation
            for example in self.read(reader, corpus, found, reverse=reverse) if corpus else ():
                yield is_back_translation, example
            report.add(found)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text to train on."""

    train: tuple[tuple[str, ...], ...] = ()
    """Training pairs, e.g. "pairs.tsv", ["a.tsv", "b.jsonl"] or [["source.txt", "target.txt"]]."""
    valid: tuple[tuple[str, ...], ...] = ()
    """Validation pairs, likewise; without them nothing is validated."""
    replay: tuple[tuple[str, ...], ...] = ()
    """Fine-tuning: old training pairs to mix with the new ones, so that the model does not forget them."""
    replay_share: float = 0.5
    """Share of old pairs in each epoch; the new pairs, or the old ones if those are fewer, are repeated."""
    by_sentence: bool = False
    """Every text is one sentence, so a text of several sentences must be translated sentence by sentence."""
    truecase: bool = False
    """Translate sentences in capitals or title case as ordinary ones, for a model of text with ordinary capitals."""
    context: int = 0
    """1: the model also reads the source of the line before, if there is one; an empty line ends a document."""
    reverse: bool = False
    """Read the second side of every pair as the source."""
    src_lang: str | None = None
    """Language that the model translates from, e.g. en or pt-BR; by default, file names such as a.en-de.tsv tell."""
    tgt_lang: str | None = None
    """Language that the model translates to, likewise; it selects the tokenizer of BLEU."""
    back_translated: tuple[tuple[str, ...], ...] = ()
    """More training pairs, each a back-translation and its original, as `transduce backtranslate` writes them. A
    reserved symbol begins their sources (tagged back-translation); data.reverse does not apply to them."""
    max_length: int = 256
    """Pairs with more tokens than this on either side are left out and counted. Of a language model: the context, in
    tokens, that it is trained with."""
    directions: dict[str, DirectionConfig] = field(default_factory=dict)
    """Instead of train, valid and reverse: a section for each direction of a multilingual model, e.g. en-de."""
    temperature: float = 1.0
    """Temperature sampling over directions: one with a share p of the pairs is drawn in proportion to p^(1/this)."""
    source_tags: bool = False
    """With directions: a tag of the source language follows that of the target language, as models such as NLLB need.
    A run takes it over from the model that it starts from."""

    def __post_init__(self) -> None:
        require_entries(train=self.train, valid=self.valid, replay=self.replay, back_translated=self.back_translated)
        require(1 <= self.max_length < 2**16 - 1, "max_length must be between 1 and 65534")
        for name in ("src_lang", "tgt_lang"):
            code = getattr(self, name)
            require(code is None or is_language_code(code), f"{name} must be a language code like en or pt-BR: {code}")
        require(self.context in (0, 1), "context must be 0 or 1: the number of sentences before that a model reads")
        require(self.temperature >= 1, "temperature must be at least 1")
        require(
            self.temperature == 1 or bool(self.directions), "temperature needs several directions (data.directions)"
        )
        require(0 < self.replay_share < 1, "replay_share must be above 0 and below 1")
        has_replay = bool(self.replay) or any(direction.replay for direction in self.directions.values())
        require(has_replay or self.replay_share == 0.5, "replay_share has no effect without old text (replay)")
        of_directions = ("train", "valid", "replay", "reverse", "src_lang", "tgt_lang", "back_translated")
        for name in of_directions if self.directions else ():
            require(not getattr(self, name), f"{name} cannot be set beside directions; each direction has its own")
        for name, direction in self.directions.items():
            parse_direction(name)
            require(bool(direction.train), f"the direction {name} has no training text (train)")

    @property
    def parts(self) -> list[CorpusPart]:
        """The text of each direction; a model with a single direction has no tags. Old text is a part of its own."""
        parts = [CorpusPart(self.train, self.valid, self.reverse, back_translated=self.back_translated)]
        replays: list[Corpus] = [self.replay]
        if self.directions:
            items = sorted(self.directions.items())
            parts = [
                CorpusPart(
                    direction.train,
                    direction.valid,
                    direction.reverse,
                    name,
                    parse_direction(name)[1],
                    direction.back_translated,
                    source=parse_direction(name)[0] if self.source_tags else None,
                )
                for name, direction in items
            ]
            replays = [direction.replay for _, direction in items]
        olds = [
            replace(part, train=old, valid=(), back_translated=(), is_replay=True)
            for part, old in zip(parts, replays, strict=True)
            if old
        ]
        return [replace(part, context=bool(self.context)) for part in parts + olds]

    @property
    def all_train(self) -> Corpus:
        return [files for part in self.parts for files in part.all_train]

    @property
    def all_valid(self) -> Corpus:
        return [files for part in self.parts for files in part.valid]

    @property
    def language_pairs(self) -> list[Direction]:
        """The directions that the model translates in; empty if the languages are not known."""
        if self.directions:
            return [parse_direction(name) for name in self.directions]
        return [(self.src_lang, self.tgt_lang)] if self.src_lang and self.tgt_lang else []

    @property
    def target_tags(self) -> list[str]:
        codes = (code for part in self.parts for code in (part.target, part.source) if code)
        return list(dict.fromkeys(map(language_tag, codes)))


def repetitions(pairs: Sequence[int], temperature: float) -> list[float]:
    """How often each direction is repeated, given its number of pairs: the largest once, smaller ones more often.

    A direction with a share p of all pairs then has a share in proportion to p^(1/temperature) of each epoch.
    """
    most = max(pairs)
    return [(most / count) ** (1 - 1 / temperature) if count else 1.0 for count in pairs]


def part_repetitions(
    parts: Sequence[CorpusPart], pairs: Sequence[int], temperature: float, replay_share: float
) -> list[float]:
    """How often each part of a corpus occurs in an epoch, given its number of pairs: at least once.

    Old text has a share of `replay_share` of each epoch, so either the old or the new text is repeated.
    """
    new = [count for part, count in zip(parts, pairs, strict=True) if not part.is_replay]
    times = repetitions(new, temperature)
    new_pairs, old_pairs = sum(count * often for count, often in zip(new, times, strict=True)), sum(pairs) - sum(new)
    wanted = new_pairs * replay_share / (1 - replay_share)  # number of old pairs for the new ones
    more_new = more_old = 1.0
    if wanted and old_pairs:
        more_new, more_old = max(1.0, old_pairs / wanted), max(1.0, wanted / old_pairs)
    of_new = iter(times)
    return [more_old if part.is_replay else more_new * next(of_new) for part in parts]
