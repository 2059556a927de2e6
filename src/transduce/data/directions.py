"""Parts of a corpus: the text of each direction, the tag of its target language, and how often each part occurs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transduce.config import require
from transduce.files.pairs import Corpus, ReadReport
from transduce.files.readers import Reader


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

    @property
    def all_train(self) -> Corpus:
        """All training text."""
        return [*self.train, *self.back_translated]

    def read_train(self, reader: Reader, report: ReadReport) -> Iterator[tuple[bool, tuple[Any, ...]]]:
        """The training examples in order, each with whether its source is a back-translation."""
        for is_back_translation, corpus in ((False, self.train), (True, self.back_translated)):
            own = ReadReport()
            reverse = self.reverse and not is_back_translation
            for example in reader.read(corpus, own, reverse=reverse) if corpus else ():
                yield is_back_translation, example
            report.add(own)


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
