"""Everything that can be found in a corpus, in the order of the report, with what to do about it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of finding."""

    name: str
    says: str
    """What is the matter with such pairs, after their number."""
    remedy: str
    spoils: bool = True
    """Whether such pairs are better left out, as --output does."""


_LEAK = "leave them out: the score on that set would be flattered"
_SWAP = "leave them out, or turn them round"
_LANGUAGE = "leave them out: the model would learn to write the wrong language"
_ALIGNMENT = "leave them out; if there are many, look at how the sides were aligned"

LEAKS = (
    Kind("leaked_pair", "whose source and translation are a pair of the --against text", _LEAK),
    Kind("leaked_source", "whose source is in the --against text", _LEAK),
    Kind("leaked_target", "whose target is in the --against text", _LEAK),
)
SHIFTED = Kind("shifted", "where one side has slipped by some lines", "put the lost line back, or cut one out")
WRONG = (
    SHIFTED,
    Kind("copied", "whose target is a copy of the source", _LANGUAGE),
    Kind("swapped", "whose source and target are swapped, by their language", _SWAP),
    Kind("source_in_target_language", "whose source is in the target's language", _LANGUAGE),
    Kind("target_in_source_language", "whose target is in the source's language", _LANGUAGE),
    Kind("foreign_source", "whose source seems to be in neither language", _LANGUAGE),
    Kind("foreign_target", "whose target seems to be in neither language", _LANGUAGE),
    Kind("length", "whose lengths do not go together", _ALIGNMENT),
    Kind("unrelated", "whose words do not translate each other", _ALIGNMENT),
)
"""A pair is counted under the first of these that it is."""
REPEATS = (
    Kind("duplicate", "that came before, word for word", "leave them out, unless their frequency matters"),
    Kind("near_duplicate", "that came before but for case, punctuation or numbers", "harmless if few", spoils=False),
    Kind("other_translation", "whose source came before with another target", "nothing: it is normal", spoils=False),
)
KINDS = (*LEAKS, *WRONG, *REPEATS)
