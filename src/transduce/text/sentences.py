"""Sentence splitting by punctuation, for models that were trained on single sentences."""

import re

# End punctuation with the quotes and brackets that close after it, before white space; or the end of a line.
# A match starts only at the start of a run of punctuation or white space, because trying every position in the run
# would take quadratic time.
_ENDS = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[”’」』）]*\s*|(?<!\s)\s*\n\s*")
_OPENING = "\"'“‘«„([¿¡"
_ABBREVIATIONS = frozenset(
    {
        *("mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "gen", "gov", "rep", "sen", "col", "capt", "lt"),
        *("inc", "ltd", "co", "corp", "dept", "no", "nr", "vs", "etc", "cf", "al", "fig", "art", "approx", "ca"),
        *("bzw", "usw"),
        *("jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"),
    }
)


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences, without the white space between them."""
    sentences, start = [], 0
    for end in _ENDS.finditer(text):
        if "\n" in end[0] or (
            _can_start(text[end.end() : end.end() + 9]) and not _is_abbreviation(text[start : end.start()], end[0])
        ):
            sentences.append(text[start : end.end()].strip())
            start = end.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _can_start(rest: str) -> bool:
    """Whether a sentence can start like this: with anything but a lower-case letter."""
    rest = rest.lstrip(_OPENING)
    return not rest[:1].islower()


def _is_abbreviation(before: str, mark: str) -> bool:
    """Whether a full stop belongs to the word before it: "Dr.", "e.g.", initials."""
    words = before.rsplit(maxsplit=1)
    if not words or not re.fullmatch(r"\.\s+", mark):
        return False
    word = words[-1].lstrip(_OPENING)
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I") or "." in word
