"""`transduce data check`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def check(
    files: Annotated[list[Path] | None, typer.Argument(help="Pairs to check: .tsv or .jsonl.")] = None,
    src: Annotated[list[Path] | None, typer.Option(help="Instead: source text, a sentence a line.")] = None,
    tgt: Annotated[list[Path] | None, typer.Option(help="Its translation, line by line.")] = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="Validation or test pairs that must not be in the text; may be repeated.")
    ] = None,
    against_src: Annotated[list[Path] | None, typer.Option(help="Instead: their sources.")] = None,
    against_tgt: Annotated[list[Path] | None, typer.Option(help="Their translations.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the pairs that pass here: .tsv or .jsonl.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for leaks, repeats, misaligned pairs and wrong languages.

    Files may be plain or end in .gz, .xz or .zst. The exit code is 1 where the text is not fit to train on.
    """
    from transduce.corpora.check.check import check as run
    from transduce.corpora.check.format_report import format_report
    from transduce.errors import ConfigError
    from transduce.text.pairs import corpus_of

    corpus = corpus_of(files or (), src or (), tgt or (), "text to check")
    unseen = corpus_of(against or (), against_src or (), against_tgt or (), "--against")
    if not corpus:
        raise ConfigError("what should be checked? Give a .tsv or .jsonl file, or --src and --tgt")
    if output and any(Path(name).resolve() == output.resolve() for entry in [*corpus, *unseen] for name in entry):
        raise ConfigError(f"--output would overwrite {output}, which is being read; name another file")
    report = run(corpus, unseen, output, lambda line: print(line, file=sys.stderr))
    if as_json:
        print(json.dumps(asdict(report), indent=1, ensure_ascii=False))
    for line in () if as_json else format_report(report):
        print(line)
    if output:
        print(f"data: {output} has the {report.passing:,} pairs that passed", file=sys.stderr)
    if not report.fit:
        raise typer.Exit(1)
