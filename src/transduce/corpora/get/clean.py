"""Cleaning of a public corpus: rules that leave pairs out, each with a count."""

from collections.abc import Iterable, Iterator

from transduce.files.pairs import Pair, count_pairs
from transduce.files.texts import hashed, normalised

MAX_WORDS = 250
MAX_RATIO = 3

TOO_LONG = f"of more than {MAX_WORDS} words"
UNEVEN = f"with more than {MAX_RATIO} times as many words on one side"
HELD_OUT = "with a sentence of the validation or test set"
REPEATED = "that occurred before"


class Cleaner:
    """Leaves pairs out by rules, in one pass, and counts them."""

    def __init__(self, held_out: Iterable[Pair]) -> None:
        self.kept = 0
        self.left_out = dict.fromkeys((TOO_LONG, UNEVEN, HELD_OUT, REPEATED), 0)
        self._held_out = {normalised(sentence) for pair in held_out for sentence in pair}
        self._seen: set[int] = set()

    def clean(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs that pass, in order, with normalised white space."""
        for source, target in pairs:
            pair = normalise_space(source), normalise_space(target)
            if problem := self._problem(pair):
                self.left_out[problem] += 1
            else:
                self.kept += 1
                yield pair

    def lines(self) -> list[str]:
        """One line of text for each rule that left pairs out."""
        return [f"left out {count_pairs(count)} {problem}" for problem, count in self.left_out.items() if count]

    def _problem(self, pair: Pair) -> str:
        shorter, longer = sorted(side.count(" ") + 1 for side in pair)
        if longer > MAX_WORDS:
            return TOO_LONG
        if longer > MAX_RATIO * shorter:
            return UNEVEN
        if not self._held_out.isdisjoint(map(normalised, pair)):
            return HELD_OUT
        key = hashed("\t".join(pair))  # the text of millions of pairs would take gigabytes
        if key in self._seen:
            return REPEATED
        self._seen.add(key)
        return ""


def normalise_space(text: str) -> str:
    """Replace each run of white space by one space, as in sacreBLEU's test sets; a tab would end a column."""
    return " ".join(text.split())
