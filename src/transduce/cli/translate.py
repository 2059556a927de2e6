"""`transduce translate`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

_LINES_AT_ONCE = 2000


def translate(
    files: Annotated[list[Path] | None, typer.Argument(help="Text to translate; standard input if none.")] = None,
    model: Annotated[Path, typer.Option("--model", "-m", help="A run, or a model folder.")] = ...,  # type: ignore[assignment]
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy [4].")] = None,
    nbest: Annotated[int | None, typer.Option(help="Translations for each line, with --jsonl [1].")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="More favours longer outputs [0.6].")] = None,
    max_extra: Annotated[int | None, typer.Option(help="Tokens an output may have beyond its input's [50].")] = None,
    prefix: Annotated[str, typer.Option(help="What every output must begin with.")] = "",
    sample: Annotated[bool, typer.Option("--sample", help="Draw outputs at random.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Below 1 sampling is tamer, above 1 wilder [1].")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample among so many likeliest tokens; 0 is all.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample among the likeliest that make up this probability.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Changes what sampling draws [1].")] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Scores, tokens, alignment: a JSON object a line.")] = False,
    long: Annotated[
        Literal["split", "refuse"], typer.Option(help="What to do with a line longer than the model takes.")
    ] = "split",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda ...")] = "auto",
) -> None:
    """Translate text, line by line: one line out for each line in, in order."""
    from transduce.errors import ConfigError
    from transduce.models.card import find_model
    from transduce.translator import Translator

    if nbest is not None and nbest > 1 and not jsonl:
        raise ConfigError("--nbest needs --jsonl: plain output is one line for each line")
    found = find_model(model)
    if found.parent.name == "checkpoints" and found != model:
        print(f"transduce: {model} is not finished; using its newest checkpoint, {found.name}", file=sys.stderr)
    given = {
        "beam": beam, "nbest": nbest, "length_penalty": length_penalty, "max_extra": max_extra,
        "sample": sample or None, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed,
    }  # fmt: skip
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    translator = Translator.load(found, device=device, **options)
    lines = _lines(files or [])
    done = 0
    while chunk := list(islice(lines, 1 if not files and sys.stdin.isatty() else _LINES_AT_ONCE)):
        prefixes = [prefix] * len(chunk) if prefix else None
        found_chunk = translator.hypotheses(chunk, prefixes=prefixes, align=jsonl, long=long, first_line=done + 1)
        for text, best in zip(chunk, found_chunk, strict=True):
            if jsonl:
                record = {
                    "source": text,
                    "source_tokens": translator.source_tokens(text),
                    "translations": [asdict(translation) for translation in best],
                }
                sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
            else:
                sys.stdout.write(best[0].text.replace("\n", " ") + "\n")
        sys.stdout.flush()
        done += len(chunk)


def _lines(files: list[Path]) -> Iterator[str]:
    from transduce.text.files import read_lines

    for path in files or [Path("-")]:
        yield from read_lines(path)
