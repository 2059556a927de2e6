"""What the text of a pair says about it, judged by what the corpus is like."""

from collections.abc import Sequence

import numpy as np

from transduce.data.check.language import Languages
from transduce.data.check.lexicon import CREDIBLE, HalvedLexicon, NumberedPair
from transduce.data.check.robust import Flags

ENOUGH = 500
"""Pairs from which on lengths, languages and words can be learnt."""
_COPY = 15  # letters from which on a copy is no mere name


class Judge:
    """Looks for copies, for wrong languages and for words that do not translate each other."""

    def __init__(self, sample: Sequence[NumberedPair]) -> None:
        self.notes: list[str] = []
        """Checks that have no say, and why."""
        self._languages: Languages | None = None
        self._lexicon: HalvedLexicon | None = None
        if len(sample) < ENOUGH:
            self.notes.append(f"fewer than {ENOUGH} pairs to learn from: languages and words were not checked")
            return
        self._languages = Languages([pair[1] for pair in sample], [pair[2] for pair in sample])
        lexicon = HalvedLexicon(sample)
        if lexicon.finds < CREDIBLE:
            self.notes.append(
                f"words were not checked: what they mean could not be learnt (of random pairings, {lexicon.finds:.0%} "
                f"would be noticed, less than {CREDIBLE:.0%})"
            )
        else:
            self._lexicon = lexicon
            self.notes.append(
                f"of random pairings of this corpus, {lexicon.finds:.0%} are noticed by their words alone"
            )

    def wrong(self, first: int, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Flags]:
        """What is wrong with some pairs that follow each other in the corpus, the first of them by its number."""
        found = {"copied": np.array([_is_copy(*pair) for pair in zip(sources, targets, strict=True)])}
        if self._languages:
            wrong = self._languages.wrong(sources, targets)
            found["swapped"] = wrong.src_is_tgt & wrong.tgt_is_src
            found["source_in_target_language"] = wrong.src_is_tgt
            found["target_in_source_language"] = wrong.tgt_is_src
            found["foreign_source"] = wrong.src_is_foreign
            found["foreign_target"] = wrong.tgt_is_foreign
        if self._lexicon:
            found["unrelated"] = self._lexicon.unrelated(np.arange(first, first + len(sources)), sources, targets)
        return found


def _is_copy(source: str, target: str) -> bool:
    return len(source) >= _COPY and source.casefold() == target.casefold()
