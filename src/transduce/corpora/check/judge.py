"""What the text of a pair says about it, judged by what the corpus is like."""

from collections.abc import Sequence

import numpy as np

from transduce.corpora.check.language import Languages
from transduce.corpora.check.lexicon import CREDIBLE, RELATED, UNRELATED, HalvedLexicon
from transduce.corpora.check.robust import Flags
from transduce.corpora.check.survey import NumberedPair
from transduce.corpora.check.words import Words, own_text, words

ENOUGH = 500
"""Pairs from which on lengths, languages and words can be learnt."""
_COPY = 15  # characters from which on a copy is no mere name


class Judge:
    """Looks for copies, for wrong languages and for words that do not translate each other."""

    def __init__(self, sample: Sequence[NumberedPair]) -> None:
        self.notes: list[str] = []
        """How sure the checks are, or why one has no say."""
        self._languages: Languages | None = None
        self._lexicon: HalvedLexicon | None = None
        if len(sample) < ENOUGH:
            self.notes.append(f"fewer than {ENOUGH} pairs to learn from: languages and words were not checked")
        else:
            self._learn(sample)

    def _learn(self, sample: Sequence[NumberedPair]) -> None:
        sources, targets = [words(pair[1]) for pair in sample], [words(pair[2]) for pair in sample]
        texts = _own_texts(sources, targets)
        self._languages = Languages(*texts)
        usual = np.flatnonzero(~self._languages.wrong(*texts).any()).tolist()
        numbers = np.array([sample[n][0] for n in usual])
        lexicon = HalvedLexicon(numbers, [sources[n] for n in usual], [targets[n] for n in usual])
        if lexicon.finds >= CREDIBLE:
            self._lexicon = lexicon
            self.notes.append(
                f"of random pairings of this corpus, {lexicon.finds:.0%} are noticed by their words alone"
            )
        else:
            self.notes.append(
                f"words were not checked, as too little could be learnt of what they mean: of random pairings, "
                f"{lexicon.finds:.0%} would be noticed"
            )

    def wrong(self, first: int, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Flags]:
        """What is wrong with some pairs that follow each other in the corpus, the first of them by its number."""
        found = {"copied": np.array([_is_copy(*pair) for pair in zip(sources, targets, strict=True)])}
        src_words, tgt_words = list(map(words, sources)), list(map(words, targets))
        related = np.zeros(len(sources), np.bool_)
        if self._lexicon:
            gains = self._lexicon.log_gains(np.arange(first, first + len(sources)), src_words, tgt_words)
            found["unrelated"] = gains < UNRELATED
            related = gains > RELATED * np.fromiter(map(len, tgt_words), np.int64, len(tgt_words))
        if self._languages:
            wrong = self._languages.wrong(*_own_texts(src_words, tgt_words))
            found["swapped"] = wrong.src_is_tgt & wrong.tgt_is_src
            found["source_in_target_language"] = wrong.src_is_tgt
            found["target_in_source_language"] = wrong.tgt_is_src
            # Rare words are as improbable as foreign ones, but a text that translates the other side is not foreign.
            found["foreign_source"] = wrong.src_is_foreign & ~related
            found["foreign_target"] = wrong.tgt_is_foreign & ~related
        return found


def _own_texts(sources: Sequence[Words], targets: Sequence[Words]) -> tuple[list[str], list[str]]:
    return list(map(own_text, sources, targets)), list(map(own_text, targets, sources))


def _is_copy(source: str, target: str) -> bool:
    return len(source) >= _COPY and source.casefold() == target.casefold()
