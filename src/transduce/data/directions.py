"""Directions of a corpus: the text of each, the tag of its target language, and temperature sampling over them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transduce.text.pairs import Corpus, ReadReport
from transduce.text.readers import Reader


@dataclass(frozen=True, kw_only=True)
class DirectionConfig:
    """The text of one direction of a multilingual model."""

    train: tuple[tuple[str, ...], ...] = ()
    """Training pairs, as in data.train."""
    valid: tuple[tuple[str, ...], ...] = ()
    """Validation pairs, likewise."""
    reverse: bool = False
    """Read the second side of every pair as the source."""
    back_translated: tuple[tuple[str, ...], ...] = ()
    """Back-translated pairs, as in data.back_translated."""


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

    @property
    def all_train(self) -> Corpus:
        """All training text."""
        return [*self.train, *self.back_translated]

    def read_train(self, reader: Reader, report: ReadReport) -> Iterator[tuple[bool, tuple[str, ...]]]:
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
