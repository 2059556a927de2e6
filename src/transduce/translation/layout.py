"""The layout of lines: tabs between columns, and the marks of lists, headings and quotations."""

import re
from collections.abc import Iterable, Iterator

from transduce.translation.abbreviations import Abbreviations
from transduce.translation.sentences import LINE_BREAKS, Sentence

_BREAK = re.compile("[\t\n\r\x85\u2028\u2029]")
_ESCAPES = r"(?<=\S)(?:\\[nrt])+(?=[^a-z\s])"  # in messages of programs: "First line.\\nSecond line."
_SEPARATOR = re.compile(rf"\t\s*|{LINE_BREAKS}|{_ESCAPES}|(?:\A|(?<=\s))([|·•])(\s+|\Z)")
_ONE = r"(?:[-–—*+•·‣▪◦●○■□►➤✓✔]|#{1,6}|>+|\[[ xX]\])"
_MARK = re.compile(rf"({_ONE}(?:\s+{_ONE})*)(\s+)(?=\S)")
_NUMBER = r"\d{1,3}\.|[IVX]{2,5}\.|\(?(?:\d{1,3}|[A-Za-z])\)"
_NUMBERED = re.compile(rf"({_NUMBER})(\s+)(?=[\"'(«„“‘*]*([^\W\d_]+))")
LIST_NUMBER = re.compile(_NUMBER)
"""A mark of a numbered list: "1.", "IV.", "2)", "(3)", "(a)"."""


def split_layout(sentences: Iterable[Sentence], language: str | None = None) -> Iterator[Sentence]:
    r"""Split sentences at tabs, at <br>, at escapes (\n) and at marks between texts, such as " | " in a list of links.

    The marks that lines begin with, such as "-", "#" and "1.", are separated from their text. In a language in which
    "1." may mean "first", it is a mark before a capital letter, except in "1. Mai" and the like.
    """
    rules = Abbreviations.of(language)
    at_start = True
    for sentence in sentences:
        for column in _columns(sentence):
            mark = _MARK.match(column.text) if at_start else None
            if mark:
                yield Sentence(mark[1], mark[2])
                column = column._replace(text=column.text[mark.end() :])
            number = _NUMBERED.match(column.text) if at_start else None
            if number and not (number[1].endswith(".") and rules.is_ordinal_before(number[3])):
                yield Sentence(number[1], number[2])
                column = column._replace(text=column.text[number.end() :])
            yield column
            at_start = bool(_BREAK.search(column.separator))


def _columns(sentence: Sentence) -> Iterator[Sentence]:
    text, start, open_brackets, counted = sentence.text, 0, 0, 0
    for found in _SEPARATOR.finditer(text):
        open_brackets += _opened(text[counted : found.start()])
        counted = found.end()
        if found[1] and open_brackets > 0:  # as in P(A | B)
            continue
        column = text[start : found.start()].rstrip()
        space = text[start + len(column) : found.start()]
        start = found.end()
        if not found[1]:
            yield Sentence(column, space + found[0])
            continue
        if column:
            yield Sentence(column, space)
        if start == len(text):
            yield Sentence(found[1], sentence.separator)
            return
        yield Sentence(found[1], found[2])
    yield Sentence(text[start:], sentence.separator)


def _opened(text: str) -> int:
    """The number of brackets that are opened in a text, less those that are closed."""
    return sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
