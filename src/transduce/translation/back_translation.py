"""Back-translation (Sennrich et al., 2016): synthetic training pairs from text of the target language only."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from transduce.errors import DataError
from transduce.files.files import open_binary, raw_lines
from transduce.files.pair_formats import UnusableError, decode, format_of, require_one_side
from transduce.files.pairs import Pair, ReadReport
from transduce.translation.translator import Translator

_LONGEST_RATIO, _SLACK = 3, 20
"""An output with more than this many tokens for each of its source, and this many in addition, is not a translation."""


class NumberedLine(NamedTuple):
    text: str
    file: str
    number: int


def require_text(files: Sequence[Path]) -> None:
    """Raise an error if a file does not exist, or holds pairs."""
    for path in files:
        require_one_side(path)
        open_binary(path).close()


def read_text(files: Sequence[Path], report: ReadReport) -> Iterator[NumberedLine]:
    """The usable lines of files; the others are counted in the report."""
    for path in files:
        for number, raw in enumerate(raw_lines(path), start=1):
            try:
                yield NumberedLine(decode(raw), str(path), number)
            except UnusableError as problem:
                report.note(str(problem), str(path), number)


def skip_written(lines: Iterator[NumberedLine], out: Path) -> int:
    """Advance the lines to the first one after the last pair in `out`; returns the number of pairs there."""
    written = 0
    for number, pair in format_of(out).read(out):
        original = "" if isinstance(pair, UnusableError) else _flat(pair[1])
        if not any(_flat(line.text) == original for line in lines):
            raise DataError(f"{out}, line {number}: its text is not in the input; it belongs to another input")
        written += 1
    return written


def back_translate(
    translator: Translator, lines: Iterator[NumberedLine], report: ReadReport, to: str | None = None
) -> Iterator[Pair]:
    """Yield a pair of the back-translation and the original for each line, in order.

    The report counts the pairs, and the lines that are left out: those with more tokens than the model accepts, and
    those whose back-translation is empty, a copy, or too long.
    """
    pending: deque[tuple[NumberedLine, int]] = deque()  # lines that are being translated, with their number of tokens

    def texts() -> Iterator[str]:
        for line in lines:
            tokens = len(translator.tokenizer.encode(line.text))
            if tokens > translator.max_source_length:
                report.note(f"of more than {translator.max_source_length} tokens", line.file, line.number)
            else:
                pending.append((line, tokens))
                yield line.text

    for best in translator.stream(texts(), to=to):
        line, tokens = pending.popleft()
        output = best[0].text
        if not output.strip():
            report.note("with an empty back-translation", line.file, line.number)
        elif _flat(output).casefold() == _flat(line.text).casefold():
            report.note("whose back-translation is a copy", line.file, line.number)
        elif len(best[0].tokens) > _LONGEST_RATIO * tokens + _SLACK:
            report.note("whose back-translation is too long", line.file, line.number)
        else:
            report.pairs += 1
            yield output, line.text


def _flat(text: str) -> str:
    """A text with every white space as one space."""
    return re.sub(r"\s+", " ", text).strip()
