"""`transduce backtranslate`."""

from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.messages import log
from transduce.cli.options import (
    DeviceOption,
    EngineOption,
    ForceOption,
    FromOption,
    ModelsOption,
    ThreadsOption,
    ToOption,
    search_options,
)
from transduce.search.options import SINGLE_OUTPUT_OPTIONS, SearchOptions


@search_options(*SINGLE_OUTPUT_OPTIONS)
def backtranslate(
    text: Annotated[
        list[Path], typer.Argument(help="Text of the target language, one sentence on each line.", metavar="FILE")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File of pairs to write, .tsv or .jsonl.")],
    model: ModelsOption = None,
    to: ToOption = None,
    from_: FromOption = None,
    force: ForceOption = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last complete line of --out.")] = False,
    *,
    options: SearchOptions,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Make synthetic training pairs by back-translation.

    The model (-m) translates text of the target language in the reverse direction. Each line becomes a pair: the
    translation is the source, the line itself is the target. Train on the pairs with data.back_translated=FILE. Lines
    without a usable translation are left out and counted. The default search is that of the model, usually beam search;
    --sample gives more varied sources.
    """
    from transduce.cli.inputs import count_lines
    from transduce.cli.outputs import line_output, refuse_compression, refuse_overwriting
    from transduce.cli.progress import ProgressBar
    from transduce.cli.request_record import request
    from transduce.errors import ConfigError, DataError
    from transduce.files.languages import language_of_name
    from transduce.files.pair_formats import writer_of
    from transduce.files.pairs import ReadReport, count_pairs
    from transduce.files.parquet import is_table
    from transduce.models.folder import find_model
    from transduce.translation.back_translation import back_translate, read_text, require_text, skip_written
    from transduce.translation.translator import Translator

    if is_table(out):
        raise ConfigError(f"{out}: a table cannot be continued; end the name in .tsv or .jsonl")
    row = writer_of(out)
    refuse_compression(out)
    refuse_overwriting(out, text, force=force, resume=resume, resumable=True)
    require_text(text)
    told = sorted({language for path in text if (language := language_of_name(path))})
    if len(told) > 1:
        raise ConfigError(
            f"the names of the files tell several languages ({', '.join(told)}); translate each by itself"
        )
    report = ReadReport()
    lines = read_text(text, report)
    translator = Translator.load(model, device=device, engine=engine, threads=threads, **options)
    source = from_ or (next(iter(told), None) if translator.directions else None)
    to = translator.target(to, source)
    folders = [find_model(path) for path in model] if model else [find_model(None)]
    with line_output(out, resume=resume, request=request(folders, to, translator.config)) as (file, done):
        if done:
            done = skip_written(lines, out)
            log(f"{out} has {count_pairs(done)} already; continuing after the last")
        log(f"engine {translator.describe_engine()}")
        with ProgressBar(lambda: count_lines(text), done, hidden=False) as progress:
            for pair in back_translate(translator, lines, report, to):
                file.write(row(*pair))
                progress.advance()
                if progress.flush_due():
                    file.flush()
    if not done and not report.pairs:
        raise DataError("; ".join([f"{', '.join(map(str, text))}: no usable line", *report.lines()]))
    for line in report.lines():
        log(line)
    log(f"{out}: {count_pairs(done + report.pairs)}; train with --set data.back_translated={out}")
