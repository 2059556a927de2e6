"""Glossaries: terms with the translations that must be used for them."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from transduce.errors import DataError
from transduce.files.files import read_lines
from transduce.files.pair_formats import is_header
from transduce.files.scripts import has_spaces
from transduce.files.texts import require_text
from transduce.translation.text import Context, Required, Span, Stage, Text

_MOST_TERMS = 100_000


class Terms(Stage):
    """Finds the terms of the request's glossary; the translation must contain theirs."""

    name = "glossary"

    def apply(self, text: Text, context: Context) -> Text:
        if not context.glossary:
            return text
        matches = context.glossary.matches(text.characters, text.spans("protected"))
        terms = (Required(translation, span, "term") for span, translation in matches)
        return replace(text, required=(*text.required, *terms))


class Glossary:
    """Finds terms in texts. A term in lower case also matches capitals; if several match, the longest is taken."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        _require_terms(terms)
        self.terms = {term.strip(): translation.strip() for term, translation in terms.items()}
        if len(self.terms) > _MOST_TERMS:
            raise DataError(f"a glossary has at most {_MOST_TERMS:,} terms, not {len(self.terms):,}")
        if empty := [term for term, translation in self.terms.items() if not (term and translation)]:
            raise DataError(f"the glossary has no translation for {empty[0]!r}")
        lengths: dict[str, set[int]] = {}
        for term in self.terms:
            lengths.setdefault(term[0], set()).add(len(term))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        """Lengths of the terms that begin with a character, longest first."""

    @classmethod
    def load(cls, path: str | Path) -> "Glossary":
        """Read a file with one term per line, a tab, and its translation; its first line may name the columns."""
        terms: dict[str, str] = {}
        for number, line in enumerate(read_lines(Path(path)), start=1):
            if not line.strip():
                continue
            term, tab, translation = line.partition("\t")
            if not (tab and term.strip() and translation.strip()) or "\t" in translation:
                raise DataError(f"{path}, line {number}: a line of a glossary is a term, a tab and its translation")
            if number == 1 and is_header((term, translation), Path(path)):
                continue
            if terms.setdefault(term, translation) != translation:
                raise DataError(f"{path}, line {number}: {term} has another translation above: {terms[term]}")
        return cls(terms)

    def matches(self, text: str, taken: Sequence[Span] = ()) -> list[tuple[Span, str]]:
        """The terms in a text and their translations, in order.

        A term inside a span that is taken does not count, but one that contains the whole span does.
        """
        results = []
        spans = deque(taken)
        lower = _lower(text)
        start = 0
        while start < len(text):
            while spans and spans[0].end <= start:
                spans.popleft()
            end = self._end(text, lower, start, spans)
            if end is None:
                start += 1
            else:
                term = text[start:end]
                results.append((Span(start, end), self.terms.get(term) or self.terms[lower[start:end]]))
                start = end
        return results

    def _end(self, text: str, lower: str, start: int, spans: Sequence[Span]) -> int | None:
        """The end of the longest term that begins at `start`; `spans` are those that end after it."""
        lengths = self._lengths.get(text[start], ()), self._lengths.get(lower[start], ())
        if not any(lengths) or (spans and spans[0].start < start) or _inside_word(text, start):
            return None
        for length in sorted({*lengths[0], *lengths[1]}, reverse=True):
            end = start + length
            if (
                (text[start:end] in self.terms or lower[start:end] in self.terms)
                and not _inside_word(text, end)
                and not any(span.start < end < span.end for span in islice(spans, length))
            ):
                return end
        return None


def _require_terms(terms: object) -> None:
    if not isinstance(terms, Mapping):
        raise DataError(
            f"a glossary is a dictionary of terms and their translations, not of the type {type(terms).__name__}; "
            "read a file with Glossary.load(path)"
        )
    for term, translation in terms.items():
        require_text(term, "a term of the glossary")
        require_text(translation, f"the translation of the term {term!r:.40}")


def _inside_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and has_spaces(text[place - 1]) and has_spaces(text[place])


def _lower(text: str) -> str:
    """The text in lower case; characters that would become several, such as İ, stay."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(character.lower() if len(character.lower()) == 1 else character for character in text)
