"""Splitting English text into words as in the Penn Treebank and its successors, which split words at hyphens."""

import re
from collections.abc import Sequence

from transduce.translation.rules import Abbreviations, matches

_BRACKETS = {"(": "-LRB-", ")": "-RRB-", "{": "-LCB-", "}": "-RCB-"}
_WHOLE = re.compile(r"-[LR][RC]B-|\w+://\S*\w/?|www\.\S*\w|[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
"""Text that is one word: brackets as the treebank writes them, addresses."""
_WORD = re.compile(
    rf"""{_WHOLE.pattern}
    | \d+(?:[.,:]\d+)+\w*            # 1,000.50
    | (?:[^\W\d_]\.){{2,}}           # U.S., e.g.
    | \w+?(?=n['’]t\b)|n['’]t\b      # do n't
    | ['’](?:s|re|ve|ll|d|m)\b       # it 's
    | \w+
    | \.{{2,}} | --+
    | \S                             # any other mark by itself
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ENGLISH = "en"


def split_words(text: str) -> list[str]:
    """The words and punctuation marks of an English sentence; round and curly brackets are written -LRB-, -RRB- ..."""
    words: list[str] = []
    end = -1
    for match in _WORD.finditer(text):
        word = match[0]
        if word == "." and match.start() == end and _is_abbreviation(words[-1], text[match.end() :]):
            words[-1] += word
        elif word.lower() == "cannot":
            words += [word[:3], word[3:]]
        else:
            words.append(_BRACKETS.get(word, word))
        end = match.end()
    return words


def without_brackets(words: Sequence[str]) -> list[str]:
    """Words as a tree may contain them: without round brackets and spaces."""
    text = " ".join(words).replace("(", _BRACKETS["("]).replace(")", _BRACKETS[")"])
    return text.split()


def _is_abbreviation(word: str, rest: str) -> bool:
    """Whether a full stop after a word belongs to it; the one at the end of the sentence is a word of its own."""
    table = Abbreviations.of(_ENGLISH)
    return bool(rest.strip("\"'”’)] ")) and (matches(word, table.never) or matches(word, table.sometimes))
