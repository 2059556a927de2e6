"""`transduce data check`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from transduce.cli.options import JsonOption


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
        Path | None, typer.Option("--out", "-o", help="File to write the pairs that pass to: .tsv or .jsonl.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a corpus for leaks, duplicates, misaligned pairs and wrong languages.

    Files may be compressed: .gz, .xz or .zst. The exit code is 1 if the corpus is not fit to train on.
    """
    from transduce.cli.outputs import refuse_overwriting
    from transduce.corpora.check.check import check as run
    from transduce.corpora.check.format_report import format_report
    from transduce.errors import ConfigError
    from transduce.files.pairs import corpus_of
    from transduce.files.texts import one_line

    corpus = corpus_of(files or (), src or (), tgt or (), "text to check")
    unseen = corpus_of(against or (), against_src or (), against_tgt or (), "--against")
    if not corpus:
        raise ConfigError("there is no text to check; give a .tsv or .jsonl file, or --src and --tgt")
    if out:
        refuse_overwriting(out, (Path(name) for entry in [*corpus, *unseen] for name in entry))
    report = run(corpus, unseen, out, lambda line: print(one_line(line), file=sys.stderr))
    if as_json:
        print(json.dumps(asdict(report), indent=1, ensure_ascii=False))
    for line in () if as_json else format_report(report):
        print(one_line(line))
    if out:
        print(f"data: wrote the {report.passing:,} pairs that passed to {out}", file=sys.stderr)
    if not report.fit:
        raise typer.Exit(1)
