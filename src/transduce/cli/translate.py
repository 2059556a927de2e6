"""`transduce translate`."""

import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from transduce.cli.inputs import Input
from transduce.cli.messages import announce, describe_engine, log
from transduce.cli.options import (
    DeviceOption,
    EngineOption,
    FromOption,
    ModelsOption,
    ThreadsOption,
    ToOption,
    search_options,
)
from transduce.search.options import SearchOptions

if TYPE_CHECKING:
    from transduce.translator import Translation, Translator


@search_options()
def translate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files to translate, or text in quotes.", metavar="FILE|TEXT", show_default="standard input"
        ),
    ] = None,
    model: ModelsOption = None,
    to: ToOption = None,
    from_: FromOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write.", show_default="standard output")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Format of documents: docx, html, md, odt, po, srt, tmx, vtt, xliff; or text, one output line for "
            "each input line.",
            metavar="NAME",
            show_default="by the file's name",
        ),
    ] = None,
    retranslate: Annotated[
        bool, typer.Option("--retranslate", help="Translate again what has a translation in the document.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last complete line of --out.")] = False,
    prefix: Annotated[str, typer.Option(help="Text that every output starts with.")] = "",
    glossary: Annotated[
        Path | None, typer.Option(help="Terms and the translations to use: a file of TERM, tab, TRANSLATION lines.")
    ] = None,
    protect: Annotated[
        bool,
        typer.Option(help="Keep addresses, placeholders, file names, numbers with units and emoji unchanged."),
    ] = True,
    protect_pattern: Annotated[
        list[str] | None, typer.Option(help="A regular expression of text to keep unchanged too; may be repeated.")
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Write one JSON object per line: n-best outputs, scores, alignment.")
    ] = False,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Add the confidence of each output and each word to --jsonl.")
    ] = False,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            help="Leave the line of an output below this confidence empty.",
            metavar="<float>",
            min=0,
            max=1,
            show_default=False,
        ),
    ] = None,
    long: Annotated[
        Literal["split", "refuse"], typer.Option(help="How to treat a line with more tokens than the model takes.")
    ] = "split",
    *,
    options: SearchOptions,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Source tokens times beam in one batch.", min=1, show_default="as many as fit")
    ] = None,
) -> None:
    """Translate text, one output line for each input line, or documents.

    An argument that names a file is read; any other is text, unless it looks like the path of a missing file. The
    translation of a document is a document, written to --out or, by default, next to it with the target language in its
    name. A search option that is not given has the value stored with the model, usually the default shown here.
    """
    from transduce.cli.inputs import STANDARD_INPUT, as_input, lines_of
    from transduce.cli.outputs import line_output
    from transduce.cli.translate_documents import find_documents, translate_documents
    from transduce.cli.translate_progress import Progress, count_lines
    from transduce.errors import ConfigError
    from transduce.models.card import find_model
    from transduce.text.glossary import Glossary

    if options.get("nbest", 1) > 1 and not jsonl:
        raise ConfigError("--nbest needs --jsonl: plain output is one line for each line")
    if confidence and not jsonl:
        raise ConfigError("--confidence needs --jsonl; plain output is text only, which --min-confidence selects")
    if protect_pattern and not protect:
        raise ConfigError("--protect-pattern protects text, but --no-protect is given")
    if resume and not (out and arguments):
        raise ConfigError("--resume needs --out and files to read: it continues where the output file ends")
    inputs = [as_input(argument) for argument in arguments or []] or [STANDARD_INPUT]
    if (
        out
        and out.exists()
        and any(isinstance(one, Path) and one != STANDARD_INPUT and out.samefile(one) for one in inputs)
    ):
        raise ConfigError(f"--out would overwrite {out}, which is being read; name another file")
    documents = find_documents(inputs, format_)
    if documents and (jsonl or resume or prefix or min_confidence is not None):
        raise ConfigError("--jsonl, --resume, --prefix and --min-confidence work with text, not with documents")
    if retranslate and not documents:
        raise ConfigError("--retranslate needs a document; a text file has no translations")
    typed = inputs == [STANDARD_INPUT] and sys.stdin.isatty()
    paths: list[Path | None] = [*model] if model else [None]
    folders = [find_model(path) for path in paths]
    for path, folder in zip(paths, folders, strict=True):
        if path and folder.parent.name == "checkpoints" and folder != path:
            log(f"{path} is not finished; using its newest checkpoint, {folder.name}")
    with announce("loading the model"):
        from transduce.translator import Translator

        translator = Translator.load(
            folders,
            device=device,
            engine=engine,
            threads=threads,
            batch_tokens=batch_tokens,
            protect=(protect_pattern or []) if protect else False,
            **options,
        )
    to = translator.target(to, from_)
    confidence = confidence or min_confidence is not None
    if confidence:
        translator.calibration(to)
    if sys.stderr.isatty() or len(folders) > 1 or translator.engine_for(translator.config) is not translator.engine:
        log(f"engine {describe_engine(translator)}")
    terms = Glossary.load(glossary) if glossary else None
    if documents:
        translate_documents(translator, documents, out, to=to, source=from_, glossary=terms, retranslate=retranslate)
        return
    began = time.monotonic()
    with ExitStack() as stack:
        file: TextIO = sys.stdout
        done = 0
        if out:
            file, done = stack.enter_context(line_output(out, resume=resume))
        if done:
            log(f"{out} has {done:,} lines already; continuing with line {done + 1:,}")
        progress = stack.enter_context(Progress(lambda: count_lines(inputs), done, typed or _is_text(inputs)))
        lines = _prompted(lines_of(inputs)) if typed else lines_of(inputs)
        if sum(1 for _ in islice(lines, done)) < done:
            raise ConfigError(f"{out} has more lines than there are to translate; it belongs to another input")
        common: dict[str, Any] = {"align": jsonl, "long": long, "to": to, "glossary": terms, "confidence": confidence}
        written = rejected = 0
        for text, best in _translated(translator, lines, prefix, done + 1, typed, common):
            accepted = min_confidence is None or best[0].confidence is None or best[0].confidence >= min_confidence
            written, rejected = written + 1, rejected + (not accepted)
            if jsonl:
                more = {} if min_confidence is None else {"accepted": accepted}
                source_tokens = translator.source_tokens(text, to, terms)
                line = _record(text, source_tokens, best, confidence, more)
            else:
                line = best[0].text.replace("\n", " ") if accepted else ""
            file.write(line + "\n")
            if progress.advance():
                file.flush()
    if sys.stderr.isatty() and not typed and not _is_text(inputs):
        log(f"{written:,} {'line' if written == 1 else 'lines'} in {time.monotonic() - began:.1f} s")
    if min_confidence is not None:
        log(f"{rejected:,} of {written:,} outputs are below the confidence {min_confidence:g}")


def _translated(
    translator: "Translator", lines: Iterator[str], prefix: str, first_line: int, typed: bool, common: dict[str, Any]
) -> Iterator[tuple[str, list["Translation"]]]:
    """Every line with its translations; lines typed in a terminal are translated one by one."""
    if typed:
        for number, text in enumerate(lines, start=first_line):
            yield text, translator.hypotheses([text], prefixes=[prefix], first_line=number, **common)[0]
    else:
        kept: deque[str] = deque()  # lines that were read but not yet translated
        ahead = _remember(lines, kept)
        for best in translator.stream(ahead, prefixes=repeat(prefix), first_line=first_line, **common):
            yield kept.popleft(), best


def _prompted(lines: Iterator[str]) -> Iterator[str]:
    """Lines that a person types, each after a prompt."""
    print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        try:
            yield next(lines)
        except StopIteration:
            print(file=sys.stderr)
            return


def _is_text(inputs: Sequence[Input]) -> bool:
    """Whether the input is one text from the command line, whose translation needs no progress."""
    return len(inputs) == 1 and isinstance(inputs[0], str)


def _remember(lines: Iterable[str], kept: deque[str]) -> Iterator[str]:
    for line in lines:
        kept.append(line)
        yield line


def _record(
    text: str, source_tokens: list[str], best: list["Translation"], confidence: bool, more: dict[str, Any]
) -> str:
    unasked = () if confidence else ("confidence", "word_confidences")
    record = {
        "source": text,
        "source_tokens": source_tokens,
        **more,
        "translations": [
            {name: value for name, value in asdict(translation).items() if name not in unasked} for translation in best
        ],
    }
    return json.dumps(record, ensure_ascii=False)
