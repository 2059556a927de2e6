"""How translations are worded: the options of a request besides those of the search."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from transduce.search.options import SearchOptions, require_names
from transduce.translation.formality import Formality
from transduce.translation.stages.glossary import Glossary

Terms = Glossary | Mapping[str, str]
"""A glossary, or its terms and their translations."""


@dataclass(frozen=True)
class Wording:
    """The wording that a request asks for."""

    glossary: Glossary | None = None
    formality: Formality | None = None
    """The form of address; by default, the model chooses it, one for a text."""
    locale: bool = True
    """Whether numbers, prices and times are written as the target language does."""

    @classmethod
    def of(cls, glossary: Terms | None = None, formality: Formality | None = None, locale: bool = True) -> "Wording":
        terms = glossary if isinstance(glossary, Glossary) or glossary is None else Glossary(glossary)
        return cls(terms, formality, locale)


DEFAULT_WORDING = Wording()


class TranslateOptions(SearchOptions, total=False):
    """The options of a translation as keyword arguments: its wording, and the fields of SearchConfig."""

    glossary: Terms | None
    formality: Formality | None
    locale: bool


def split_options(options: TranslateOptions, function: str) -> tuple[Wording, SearchOptions]:
    """The wording, and the options of the search; a TypeError of the function for one that does not exist."""
    require_names(options, [*TranslateOptions.__annotations__], function)
    wording = {name: value for name, value in options.items() if name not in SearchOptions.__annotations__}
    search = {name: value for name, value in options.items() if name not in wording}
    return Wording.of(**wording), cast(SearchOptions, search)  # type: ignore[arg-type]
