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
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    from transduce.text.tables import Row
    from transduce.translator import Translation, Translator


@search_options()
def translate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files to translate (text, .jsonl, .parquet, datasets), or text in quotes.",
            metavar="FILE|TEXT",
            show_default="standard input",
        ),
    ] = None,
    model: ModelsOption = None,
    to: ToOption = None,
    from_: FromOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write: text, or rows in .jsonl, .parquet or .arrow; without suffix, of a dataset, a dataset.",
            show_default="standard output",
        ),
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
    shard: Annotated[
        str | None,
        typer.Option(
            help="Translate only part I of N consecutive parts, e.g. 2/8; the outputs of all parts, concatenated, are "
            "the output without this option.",
            metavar="I/N",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="Column of the text in .jsonl, .parquet and .arrow files and datasets.", show_default="src or text"
        ),
    ] = None,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray", help="Translate each file into one of the same name in the folder --out, with workers of Ray."
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Number of workers of --ray.", min=1, show_default="one per GPU, or per --threads (1) cores"),
    ] = None,
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

    Of rows, all columns are kept, and the translation is the column tgt.
    """
    from transduce.cli.inputs import STANDARD_INPUT, as_input, count_lines, rows_of, shard_of
    from transduce.cli.outputs import Output, open_output
    from transduce.cli.translate_documents import find_documents, translate_documents
    from transduce.cli.translate_progress import Progress
    from transduce.cli.translate_ray import translate_with_ray
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
    if documents and (ray or shard or column):
        raise ConfigError("--ray, --shard and --column work with lines and rows, not with documents")
    if documents and (jsonl or resume or prefix or min_confidence is not None):
        raise ConfigError("--jsonl, --resume, --prefix and --min-confidence work with text, not with documents")
    if retranslate and not documents:
        raise ConfigError("--retranslate needs a document; a text file has no translations")
    if workers and not ray:
        raise ConfigError("--workers is the number of workers of --ray; give --threads for the threads of this process")
    if ray:
        given = {"--jsonl": jsonl, "--shard": shard, "--min-confidence": min_confidence is not None}
        refused = [name for name, value in (given | {"--long refuse": long == "refuse"}).items() if value]
        if refused:
            raise ConfigError(f"--ray does not support {', '.join(refused)}")
        loading = {"device": device, "engine": engine, "batch_tokens": batch_tokens, **options}
        loading |= {"protect": (protect_pattern or []) if protect else False, "model": model, "to": to}
        loading |= {"prefix": prefix, "glossary": Glossary.load(glossary) if glossary else None}
        translate_with_ray(inputs, out, loading, column=column, workers=workers, threads=threads, resume=resume)
        return
    part = shard_of(inputs, shard) if shard else None
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
    to = to or _default_target(translator, from_)
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
        output = stack.enter_context(open_output(out, inputs, resume=resume, records=jsonl)) if out else Output()
        done = output.done
        if done is None:
            log(f"{out} is complete")
            return
        if done:
            log(f"{out} has {done:,} lines already; continuing with line {done + 1:,}")
        hidden = typed or _is_text(inputs)
        progress = stack.enter_context(
            Progress(lambda: count_lines(inputs) if part is None else len(part), done, hidden)
        )
        lines = rows_of(inputs, column)
        if typed:
            lines = _prompted(lines)
        first = done
        if part is not None:
            lines, first = islice(lines, part.start, part.stop), part.start + done
        if sum(1 for _ in islice(lines, done)) < done:
            raise ConfigError(f"{out} has more lines than there are to translate; it belongs to another input")
        common: dict[str, Any] = {"align": jsonl, "long": long, "to": to, "glossary": terms, "confidence": confidence}
        written = rejected = 0
        for (text, row), best in _translated(translator, lines, prefix, first + 1, typed, common):
            accepted = min_confidence is None or best[0].confidence is None or best[0].confidence >= min_confidence
            written, rejected = written + 1, rejected + (not accepted)
            if jsonl:
                more = {} if min_confidence is None else {"accepted": accepted}
                source_tokens = translator.source_tokens(text, to, terms)
                output.write(_record(text, source_tokens, best, confidence, more) + "\n")
            else:
                output.add(row, best[0].text if accepted else "")
            if progress.advance():
                output.flush()
    if sys.stderr.isatty() and not typed and not _is_text(inputs):
        log(f"{written:,} {'line' if written == 1 else 'lines'} in {time.monotonic() - began:.1f} s")
    if min_confidence is not None:
        log(f"{rejected:,} of {written:,} outputs are below the confidence {min_confidence:g}")


def _default_target(translator: "Translator", source: str | None) -> str | None:
    """The model's default target language, with a message, if it has one and the request leaves a choice."""
    possible = [one for one in translator.directions if source in (None, one[0])]
    targets = list(dict.fromkeys(target for _, target in possible))
    default = translator.default_to
    if default not in targets or len(targets) == 1:
        return None
    sources = " or ".join(one for one, target in possible if target == default)
    log(f"translating {sources} to {default}; for another target language, use --to ({', '.join(targets)})")
    return default


def _translated(
    translator: "Translator",
    rows: Iterator[tuple[str, "Row"]],
    prefix: str,
    first_line: int,
    typed: bool,
    common: dict[str, Any],
) -> Iterator[tuple[tuple[str, "Row"], list["Translation"]]]:
    """Every text and its row with the translations; lines typed in a terminal are translated one by one."""
    if typed:
        for number, (text, row) in enumerate(rows, start=first_line):
            best = translator.hypotheses([text], prefixes=[prefix], first_line=number, **common)[0]
            yield (text, row), best
    else:
        kept: deque[tuple[str, Row]] = deque()  # rows that were read but not yet translated
        ahead = _remember(rows, kept)
        for best in translator.stream(ahead, prefixes=repeat(prefix), first_line=first_line, **common):
            yield kept.popleft(), best


def _prompted(rows: Iterator[tuple[str, "Row"]]) -> Iterator[tuple[str, "Row"]]:
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


def _remember(rows: Iterable[tuple[str, "Row"]], kept: deque[tuple[str, "Row"]]) -> Iterator[str]:
    for text, row in rows:
        kept.append((text, row))
        yield text


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
