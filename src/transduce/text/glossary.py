"""Glossaries: terms with the translations that must be used for them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from transduce.errors import DataError
from transduce.text.files import read_lines
from transduce.text.protect import Span

_MOST_TERMS = 100_000


class Glossary:
    """Finds terms in texts. A term in lower case also matches capitals; where several match, the longest is taken."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        self.terms = {term.strip(): translation.strip() for term, translation in terms.items()}
        if len(self.terms) > _MOST_TERMS:
            raise DataError(f"a glossary has at most {_MOST_TERMS:,} terms, not {len(self.terms):,}")
        if empty := [term for term, translation in self.terms.items() if not (term and translation)]:
            raise DataError(f"the glossary has no translation for {empty[0]!r}")
        longest_first = sorted(self.terms, key=len, reverse=True)
        pattern = "|".join(_bounded(term) for term in longest_first)
        self._pattern = re.compile(pattern, re.IGNORECASE) if pattern else None

    @classmethod
    def load(cls, path: Path) -> "Glossary":
        """Read a file with one term per line, a tab, and its translation."""
        terms: dict[str, str] = {}
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            term, tab, translation = line.partition("\t")
            if not (tab and term.strip() and translation.strip()) or "\t" in translation:
                raise DataError(f"{path}, line {number}: a line of a glossary is a term, a tab and its translation")
            terms[term] = translation
        return cls(terms)

    def matches(self, text: str, taken: Sequence[Span] = ()) -> list[tuple[Span, str]]:
        """The terms in a text, outside the spans that are taken, with their translations."""
        results = []
        for match in self._pattern.finditer(text) if self._pattern else ():
            span = Span(*match.span())
            translation = self.terms.get(match[0]) or self.terms.get(match[0].lower())
            if translation and all(span.end <= other.start or other.end <= span.start for other in taken):
                results.append((span, translation))
        return results


def _bounded(term: str) -> str:
    """The pattern of a term that is not a part of a word, in scripts with spaces between words."""
    first, last = (r"(?<!\w)" if _has_spaces(term[0]) else "", r"(?!\w)" if _has_spaces(term[-1]) else "")
    return first + re.escape(term) + last


def _has_spaces(character: str) -> bool:
    """Whether a letter belongs to a script that puts spaces between words."""
    return (
        character.isalnum()
        and not "\u0e00" <= character <= "\u109f"
        and not "\u1780" <= character <= "\u17ff"
        and (character < "\u2e80" or "\uac00" <= character <= "\ud7a3")
    )
