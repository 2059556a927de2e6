"""The layout of lines: tabs between columns, and the marks of lists, headings and quotations."""

import re
from collections.abc import Iterable, Iterator

from transduce.text.sentences import Sentence

_BREAK = re.compile("[\t\n\r\x85\u2028\u2029]")
_TAB = re.compile(r"\t\s*")
_ONE = r"(?:[-–—*+•·‣▪◦●○■□►➤✓✔]|#{1,6}|>+|\[[ xX]\])"
_MARK = re.compile(rf"({_ONE}(?:\s+{_ONE})*)(\s+)(?=\S)")


def split_layout(sentences: Iterable[Sentence]) -> Iterator[Sentence]:
    """Split sentences at tabs, and separate the marks that lines begin with, such as "-" and "#", from their text."""
    at_start = True
    for sentence in sentences:
        for column in _columns(sentence):
            mark = _MARK.match(column.text) if at_start else None
            if mark:
                yield Sentence(mark[1], mark[2])
                column = column._replace(text=column.text[mark.end() :])
            yield column
            at_start = bool(_BREAK.search(column.separator))


def _columns(sentence: Sentence) -> Iterator[Sentence]:
    text, start = sentence.text, 0
    for tab in _TAB.finditer(text):
        column = text[start : tab.start()].rstrip()
        yield Sentence(column, text[start + len(column) : tab.end()])
        start = tab.end()
    yield Sentence(text[start:], sentence.separator)
