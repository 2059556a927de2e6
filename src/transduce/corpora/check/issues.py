"""The issues that pairs of a corpus can have, in the order of the report, with their remedies."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Issue:
    """One type of issue."""

    name: str
    description: str
    """What such pairs have in common; in the report it follows their number."""
    remedy: str
    left_out: bool = True
    """Whether --out leaves such pairs out."""


_LEAK = "leave them out: they inflate the score on that set"
_SWAP = "leave them out, or swap their sides"
_LANGUAGE = "leave them out: the model would learn to write the wrong language"
_ALIGNMENT = "leave them out; if there are many, check how the sides were aligned"

LEAKS = (
    Issue("leaked_pair", "whose source and translation are a pair of the --against text", _LEAK),
    Issue("leaked_source", "whose source is in the --against text", _LEAK),
    Issue("leaked_target", "whose target is in the --against text", _LEAK),
)
SHIFTED = Issue(
    "shifted", "in which one side is shifted by some lines", "restore the missing line, or delete the extra one"
)
ERRORS = (
    SHIFTED,
    Issue("copied", "whose target is a copy of the source", _LANGUAGE),
    Issue("swapped", "whose source and target are swapped, by their language", _SWAP),
    Issue("source_in_target_language", "whose source is in the target's language", _LANGUAGE),
    Issue("target_in_source_language", "whose target is in the source's language", _LANGUAGE),
    Issue("foreign_source", "whose source seems to be in neither language", _LANGUAGE),
    Issue("foreign_target", "whose target seems to be in neither language", _LANGUAGE),
    Issue("length", "whose lengths do not match", _ALIGNMENT),
    Issue("unrelated", "whose words do not translate each other", _ALIGNMENT),
)
"""A pair is counted under the first of these that applies."""
DUPLICATES = (
    Issue("duplicate", "that occurred before, word for word", "leave them out, unless their frequency matters"),
    Issue("near_duplicate", "that occurred before but for case, punctuation or numbers", "harmless if few", False),
    Issue("other_translation", "whose source occurred before with another target", "none: this is normal", False),
)
ISSUES = (*LEAKS, *ERRORS, *DUPLICATES)
