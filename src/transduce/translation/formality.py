"""The form of address: whether a text in a language with two forms, such as German, says "Sie" or "du".

Models learn it from training text (augment.formality): a symbol before the source names the form of the target.
"""

import re
from functools import cache
from typing import Literal

from transduce.files.languages import base_language
from transduce.translation.rules import rules_of

Formality = Literal["formal", "informal"]


def form_of_address(text: str, language: str | None) -> Formality | None:
    """The form that a text uses; None if it uses none or both, or if the language has only one."""
    found = [form for form, words in _patterns(base_language(language)).items() if words.search(text)]
    return found[0] if len(found) == 1 else None


def has_forms_of_address(language: str) -> bool:
    """Whether a language has two forms of address, and rules that tell them apart."""
    return bool(_patterns(base_language(language)))


@cache
def _patterns(language: str | None) -> dict[Formality, re.Pattern[str]]:
    address = rules_of(language).get("address", {})
    forms: tuple[Formality, ...] = ("formal", "informal")
    return {form: _pattern(address[form].split()) for form in forms if address}


def _pattern(words: list[str]) -> re.Pattern[str]:
    """Finds words in any case; those with a capital only as they are, and not at the start of a sentence."""
    capital = "|".join(word for word in words if word != word.lower())
    other = "|".join(word for word in words if word == word.lower())
    patterns = [rf"(?<=[\w,;)] )(?:{capital})\b"] * bool(capital) + [rf"\b(?i:{other})\b"] * bool(other)
    return re.compile("|".join(patterns))
