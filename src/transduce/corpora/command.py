"""`transduce data`: the commands for corpora."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from transduce.cli.messages import ended_by_signals
from transduce.cli.options import Command, ForceOption, JsonOption, SetOption
from transduce.files.texts import one_line

data = typer.Typer(help="Download and check parallel corpora.", no_args_is_help=True, rich_markup_mode=None)
# The corpus is clean and its sentences are short: no dropout, small batches and a short warmup suit four minutes.
DEMO_SETTINGS = {
    "model.dropout": 0.0,
    "train.batch_tokens": 768,
    "train.steps": 1500,
    "train.warmup": 300,
    "train.save_every": 250,
    "train.valid_sentences": 200,
    "train.average": 3,
}


@data.command(cls=Command)
def get(
    name: Annotated[str, typer.Argument(help="A corpus, e.g. wmt14-en-de, or a .toml file that describes one.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write.", show_default="data/NAME")] = None,
    mirror: Annotated[
        str | None, typer.Option(help="Mirror server to download from, with the same paths.", metavar="URL")
    ] = None,
) -> None:
    """Download and clean a public corpus: training, validation and test data.

    The corpus demo is generated and needs no network. Every file is verified by its SHA-256. Run the same command again
    to resume an interrupted download.
    """
    from transduce.corpora.get.catalogue import read_corpus
    from transduce.corpora.get.get import get_corpus

    out = out or Path("data") / Path(name).stem
    if name == "demo":
        from transduce.corpora.demo.corpus import demo_corpus, write_demo_corpus

        write_demo_corpus(out, demo := demo_corpus())
        print(f"data: wrote {len(demo.train):,} training pairs, and validation and test text, to {out}")
        return
    corpus = read_corpus(name)
    with _Display() as display:
        get_corpus(corpus, out, mirror, display.log, display.advance)
        train, valid, _ = (out / file for file in corpus.file_names.values())
        display.log(f"to train on it: transduce train --train {train} --valid {valid} --out runs/{out.name}")


class _Display:
    """Prints lines to stderr and, in a terminal, the progress of each download."""

    def __init__(self) -> None:
        self._live: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "_Display":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
            from rich.progress import TransferSpeedColumn as SpeedColumn

            columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), DownloadColumn(), SpeedColumn())
            console = Console(stderr=True, highlight=False, soft_wrap=True)
            self._live = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def log(self, line: str) -> None:
        line = f"data: {one_line(line)}"
        if self._live:
            self._live.console.print(line, markup=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def advance(self, name: str, size: int, done: int) -> None:
        """Update the progress of an archive: `done` of `size` bytes."""
        if self._live:
            if name not in self._tasks:
                self._tasks[name] = self._live.add_task(name, total=size, completed=done)
            self._live.update(self._tasks[name], completed=done)


@data.command(cls=Command)
def check(
    files: Annotated[list[Path] | None, typer.Argument(help="Sentence pairs to check: .tsv or .jsonl.")] = None,
    src: Annotated[list[Path] | None, typer.Option(help="Instead: source text, one sentence per line.")] = None,
    tgt: Annotated[list[Path] | None, typer.Option(help="The translation of --src, line by line.")] = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="Validation or test pairs to search for leaks; may be repeated.")
    ] = None,
    against_src: Annotated[list[Path] | None, typer.Option(help="Instead: their source text.")] = None,
    against_tgt: Annotated[list[Path] | None, typer.Option(help="The translation of --against-src.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write the pairs that pass to: .tsv, .jsonl, .parquet or .arrow."),
    ] = None,
    force: ForceOption = False,
    charts: Annotated[
        Path | None, typer.Option(help="Page to write with charts of lengths, scripts, languages and repetition.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a corpus for leaks, duplicates, misaligned pairs and wrong languages.

    Files may be compressed: .gz, .xz or .zst. The exit code is 1 if the corpus is not fit to train on.
    """
    from transduce.cli.outputs import refuse_overwriting, require_file_output
    from transduce.corpora.check.check import examine
    from transduce.corpora.check.report import format_report, make_report
    from transduce.errors import ConfigError
    from transduce.files.pairs import corpus_of

    corpus = corpus_of(files or (), src or (), tgt or (), "text to check")
    unseen = corpus_of(against or (), against_src or (), against_tgt or (), "--against")
    if not corpus:
        raise ConfigError("there is no text to check; give a .tsv or .jsonl file, or --src and --tgt")
    if out:
        refuse_overwriting(out, (Path(name) for entry in [*corpus, *unseen] for name in entry), force=force)
    if charts:
        require_file_output(charts)
        refuse_overwriting(charts, (Path(name) for entry in [*corpus, *unseen] for name in entry), force=force)
    results = examine(corpus, unseen, out, lambda line: print(one_line(line), file=sys.stderr))
    report = make_report(results)
    if as_json:
        print(json.dumps(asdict(report), indent=1, ensure_ascii=False))
    for line in () if as_json else format_report(report):
        print(one_line(line))
    if out:
        print(f"data: wrote the {report.passing:,} pairs that passed to {out}", file=sys.stderr)
    if charts:
        from transduce.corpora.check.page import write_check_page

        write_check_page(charts, results, report)
        print(f"data: open {charts} in a browser to see charts of the corpus", file=sys.stderr)
    elif sys.stderr.isatty():
        print("data: to see charts of the corpus, add --charts check.html", file=sys.stderr)
    if not report.fit:
        raise typer.Exit(1)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")] = Path("runs/demo"),
    set_: SetOption = None,
) -> None:
    """Train, score and use a small model on the demo corpus.

    The corpus is English-German and part of the package; training takes four minutes on a CPU.
    """
    with ended_by_signals():
        from transduce.corpora.demo.corpus import demo_corpus, write_demo_corpus
        from transduce.training.api import train
        from transduce.translation.scores import score
        from transduce.translation.translator import Translator

    text = out.parent / f"{out.name}-text"
    corpus = demo_corpus()
    write_demo_corpus(text, corpus)
    print(f"wrote the demo corpus to {text}: {len(corpus.train):,} training pairs")
    outcome = train(
        out,
        src=text / "train.en",
        tgt=text / "train.de",
        valid_src=text / "valid.en",
        valid_tgt=text / "valid.de",
        preset="tiny",
        settings=DEMO_SETTINGS,
        sets=set_ or (),
    )
    if outcome.stop_signal is not None:
        raise typer.Exit(128 + outcome.stop_signal)

    sources, references = map(list, zip(*corpus.test, strict=True))
    outputs = Translator.load(out).translate(sources)
    print(f"\n{len(sources):,} test sentences, each with a combination of words that is not in the training data:")
    for result in score(outputs, references):
        print(f"  {result.metric:<6}{result.value:6.2f}   {result.signature}")
    print("\nexamples:")
    for source, output in list(zip(sources, outputs, strict=True))[:5]:
        print(f"  {source}\n  → {output}")
    print(f"\nopen {out / 'report.html'} in a browser, or translate:")
    print(f'  echo "{sources[0]}" | transduce translate -m {out}')
