"""`transduce translate` for lines of text and rows of tables."""

import gc
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import accumulate, islice, repeat, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.cli.inputs import STANDARD_INPUT, Input, count_lines
from transduce.cli.messages import log
from transduce.cli.outputs import LineOutput, open_output
from transduce.cli.progress import ProgressBar
from transduce.errors import ConfigError, DataError
from transduce.files.parquet import Row
from transduce.files.rows import TARGET_COLUMN
from transduce.files.scripts import script

if TYPE_CHECKING:
    from transduce.translation.commands.translate import LineOptions
    from transduce.translation.translation import Translation, Translations
    from transduce.translation.translator import Translator


def translate_lines(
    translator: "Translator",
    inputs: Sequence[Input],
    rows: Iterator[tuple[str, Row]],
    out: Path | None,
    options: "LineOptions",
    shard: range | None,
    to: str | None,
    typed_to: Callable[[str], str | None] | None,
    wording: dict[str, Any],
    request: Mapping[str, str],
) -> None:
    """Translate each row of the inputs, or those of a shard, to `out` or to standard output.

    `typed_to` chooses the target language of a line that is typed in a terminal, if its language is not known.
    """
    jsonl, min_confidence, confidence = options.jsonl, options.min_confidence, options.needs_confidence
    typed = inputs == [STANDARD_INPUT] and sys.stdin.isatty()
    gc.freeze()  # the objects of torch, which take 0.1 s to examine, stay out of later collections of garbage
    began = time.monotonic()
    with ExitStack() as stack:
        output = LineOutput()
        if out:
            output = stack.enter_context(
                open_output(out, inputs, resume=options.resume, records=jsonl, request=request)
            )
        done = output.done
        if done is None:
            log(f"{out} is complete")
            return
        hidden = typed or _is_text(inputs)
        progress = stack.enter_context(
            ProgressBar(lambda: count_lines(inputs) if shard is None else len(shard), done, hidden)
        )
        lines = _with_context(_prompted(rows) if typed else rows, inputs if translator.pipeline.context else [])
        first = done
        if shard is not None:
            lines, first = islice(lines, shard.start, shard.stop), shard.start + done
        if sum(1 for _ in islice(lines, done)) < done:
            raise ConfigError(f"{out} has more lines than there are to translate; it belongs to another input")
        if done:
            log(f"{out} has {done:,} lines already; continuing with line {done + 1:,}")
        common: dict[str, Any] = {"align": jsonl, "long": options.long, "to": to, **wording, "confidence": confidence}
        if not typed:
            common["text_done"] = progress.advance
        written = rejected = 0
        unread: list[int] = []
        replaces_column = False
        for (text, row), best in _translated(translator, lines, options.prefix, first + 1, typed, typed_to, common):
            accepted = min_confidence is None or best[0].confidence is None or best[0].confidence >= min_confidence
            written, rejected = written + 1, rejected + (not accepted)
            if _is_unread(text, best):
                unread.append(first + written)
            if jsonl:
                more = {} if min_confidence is None else {"accepted": accepted}
                output.write(_record(text, translator.source_tokens(best.segments), best, confidence, more) + "\n")
            else:
                replaces_column = replaces_column or (output.as_rows and TARGET_COLUMN in row)
                output.add(row, best[0].text if accepted else "")
            if progress.flush_due():
                output.flush()
    if sys.stderr.isatty() and not typed and not _is_text(inputs):
        log(f"{written:,} {'line' if written == 1 else 'lines'} in {time.monotonic() - began:.1f} s")
    if unread:
        copied = f"line {unread[0]:,} was" if len(unread) == 1 else f"{len(unread):,} lines (first: {unread[0]:,}) were"
        log(f"warning: {copied} copied, because the model does not read the script")
    if replaces_column:
        log(f"warning: the rows had a column {TARGET_COLUMN}; in {out}, the translation is in its place")
    if min_confidence is not None:
        log(f"{rejected:,} of {written:,} outputs are below the confidence {min_confidence:g}")


def _is_unread(text: str, best: "Translations") -> bool:
    """Whether a text was copied because the model does not read its letters."""
    return any(script(letter) not in ("", "LATIN") for letter in text if letter > "z") and all(
        segment.is_untranslatable for segment in best.segments
    )


def explain_lines(translator: "Translator", rows: Iterable[tuple[str, Row]], *, to: str | None, **wording: Any) -> None:
    """Print each line and the text after each stage that changes it, with the number of its segment."""
    for text, _ in rows:
        print(f"{'':11} {text}")
        for segment, stage, after in translator.explain(text, to=to, **wording):
            print(f"{segment or '':>1} {stage:9} {after}")


def _translated(
    translator: "Translator",
    rows: Iterator[tuple[tuple[str, Row], str]],
    prefix: str,
    first_line: int,
    typed: bool,
    typed_to: Callable[[str], str | None] | None,
    common: dict[str, Any],
) -> Iterator[tuple[tuple[str, Row], "Translations"]]:
    """Every text and its row with the translations; lines typed in a terminal are translated one by one."""
    if typed:
        for number, ((text, row), before) in enumerate(rows, start=first_line):
            try:
                to = typed_to(text) if typed_to else common["to"]
            except DataError as error:
                log(str(error))
                continue
            options = {**common, "to": to, "contexts": [before]}
            (best,) = translator.stream([text], prefixes=[prefix], first_line=number, **options)
            yield (text, row), best
    else:
        kept: deque[tuple[str, Row]] = deque()  # rows that were read but not yet translated
        rows, others = tee(rows)
        ahead, contexts = _remember((row for row, _ in rows), kept), (before for _, before in others)
        options = {**common, "contexts": contexts}
        for best in translator.stream(ahead, prefixes=repeat(prefix), first_line=first_line, **options):
            yield kept.popleft(), best


def _with_context(rows: Iterable[tuple[str, Row]], inputs: Sequence[Input]) -> Iterator[tuple[tuple[str, Row], str]]:
    """Rows with the text of the row before in the same input, for models with data.context."""
    several = inputs if len(inputs) > 1 else []
    starts = {*accumulate((count_lines([item]) or 0 for item in several), initial=0)}
    before = ""
    for number, (text, row) in enumerate(rows):
        yield (text, row), "" if number in starts else before
        before = text


def _prompted(rows: Iterator[tuple[str, Row]]) -> Iterator[tuple[str, Row]]:
    """Lines that a person types, each after a prompt."""
    print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        try:
            yield next(rows)
        except StopIteration:
            print(file=sys.stderr)
            return


def _is_text(inputs: Sequence[Input]) -> bool:
    """Whether the input is one text from the command line, whose translation needs no progress."""
    return len(inputs) == 1 and isinstance(inputs[0], str)


def _remember(rows: Iterable[tuple[str, Row]], kept: deque[tuple[str, Row]]) -> Iterator[str]:
    for text, row in rows:
        kept.append((text, row))
        yield text


def _record(
    text: str, source_tokens: list[str], best: list["Translation"], confidence: bool, more: dict[str, Any]
) -> str:
    unasked = () if confidence else ("confidence", "word_confidences", "uncovered")
    record = {
        "source": text,
        "source_tokens": source_tokens,
        **more,
        "translations": [
            {name: value for name, value in asdict(translation).items() if name not in unasked} for translation in best
        ],
    }
    return json.dumps(record, ensure_ascii=False)
