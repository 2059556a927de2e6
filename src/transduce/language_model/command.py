"""`transduce generate`, and `transduce score` for language models."""

import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transduce.cli.messages import log
from transduce.cli.options import DeviceOption, EngineOption, ThreadsOption, model_option, search_options, text_argument
from transduce.search.options import SAMPLING_OPTIONS, SamplingOptions

if TYPE_CHECKING:
    from transduce.language_model.generator import Generator

_BETWEEN = "---"
"""The line between outputs, if there are several."""
_WINDOW = 256
"""Texts that are scored, and printed, together."""


@search_options(*SAMPLING_OPTIONS)
def generate(
    prompts: Annotated[
        list[str] | None, text_argument("Text to continue, in quotes; may be repeated.", "PROMPT")
    ] = None,
    model: Annotated[Path | None, model_option("A run or a model folder of a language model.")] = None,
    max_tokens: Annotated[int, typer.Option(help="Maximum number of new tokens.", min=1)] = 256,
    stop: Annotated[
        list[str] | None, typer.Option(help="Text before which an output ends; may be repeated.", show_default=False)
    ] = None,
    num: Annotated[int, typer.Option(help="Number of outputs for each prompt.", min=1, max=1024)] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per output, with tokens and log-probabilities.")
    ] = False,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
    options: SamplingOptions = {},  # noqa: B006
) -> None:
    """Continue text with a language model.

    Every prompt is printed with its continuation, which appears token by token. It ends when the model ends the text,
    before the text of --stop, or after --max-tokens. Lines of three hyphens separate several outputs.
    """
    from transduce.cli.inputs import STANDARD_INPUT, require_utf8
    from transduce.errors import ConfigError
    from transduce.files.files import read_lines
    from transduce.language_model.generator import Generator, stop_texts

    if model is None:
        raise ConfigError("name a language model with -m; train one with: transduce train --text corpus.txt --out run")
    for text in (*(prompts or ()), *(stop or ())):
        require_utf8(text)
    for file in filter(os.path.isfile, prompts or ()):
        name = shlex.quote(file)
        raise ConfigError(
            f"{file} is a file, but prompts are texts; to continue each of its lines, use: transduce generate < {name}"
            f"; to continue the name, pipe it in: echo {name} | transduce generate"
        )
    limits: dict[str, Any] = {"max_tokens": max_tokens, "stop": stop_texts(stop or ())}
    generator = Generator.load(model, device=device, engine=engine, threads=threads, **options)
    checked = _checked(generator, prompts if prompts is not None else read_lines(STANDARD_INPUT), max_tokens)
    if not as_json:
        _write_text(generator, checked, num, limits)
        return
    for prompt in checked:
        for output in generator.generations([prompt], num=num, **limits)[0]:
            print(json.dumps({"prompt": prompt, **vars(output)}, ensure_ascii=False), flush=True)


def _checked(generator: "Generator", prompts: Iterable[str], max_tokens: int) -> Iterator[str]:
    """The prompts, with a message for each that the model cannot read as a whole."""
    for number, prompt in enumerate(prompts, start=1):
        if unread := generator.unread_tokens(prompt, max_tokens):
            log(
                f"warning: prompt {number} is too long for the context of {generator.context:,} tokens; the model does "
                f"not read its first {unread:,}"
            )
        yield prompt


def _write_text(generator: "Generator", prompts: Iterable[str], num: int, limits: dict[str, Any]) -> None:
    written = 0
    for prompt in prompts:
        outputs = (
            [generator.stream(prompt, **limits)]
            if num == 1
            else [[output.text] for output in generator.generations([prompt], num=num, **limits)[0]]
        )
        for output in outputs:
            sys.stdout.write((f"{_BETWEEN}\n" if written else "") + prompt)
            for text in output:
                sys.stdout.write(text)
                sys.stdout.flush()
            sys.stdout.write("\n")
            written += 1
    sys.stdout.flush()


def score_texts(
    model: Path,
    files: list[Path],
    *,
    document: bool,
    stride: int | None,
    per_token: bool,
    jsonl: bool,
    device: str,
    threads: int | None,
) -> None:
    """Print the log-probability of each text of the files, and to stderr that of all."""
    from transduce.errors import ConfigError, DataError
    from transduce.files.pairs import count_pairs
    from transduce.language_model.generator import Generator

    if not files:
        raise ConfigError("give the text to score: a .txt or .jsonl file, or - for standard input")
    generator = Generator.load(model, device=device, threads=threads)
    texts = _texts(files, document)
    total, tokens, characters, count = 0.0, 0, 0, 0
    while chunk := list(islice(texts, _WINDOW)):
        for text, score in zip(chunk, generator.score(chunk, stride=stride), strict=True):
            total, tokens = total + score.log_prob, tokens + len(score.tokens)
            characters, count = characters + len(text), count + 1
            if jsonl:
                print(json.dumps({"text": text, **asdict(score), "per_token": score.per_token}, ensure_ascii=False))
            else:
                print(f"{score.log_prob:.4f}\t{score.per_token:.4f}" if per_token else f"{score.log_prob:.4f}")
    if not tokens:
        raise DataError(f"{', '.join(map(str, files))}: no text, so there is no perplexity")
    perplexity = math.exp(min(-total / tokens, 700))
    bits = -total / math.log(2) / characters
    log(
        f"{count_pairs(count, 'text')}, {count_pairs(tokens, 'token')}: log-probability {total:.2f}, "
        f"perplexity {perplexity:.2f}, {bits:.3f} bits per character"
    )


def _texts(files: list[Path], document: bool) -> Iterator[str]:
    """The lines of text files, or with `document` each as a whole; and the documents of rows."""
    from transduce.errors import ConfigError
    from transduce.files.files import read_lines
    from transduce.files.pair_formats import has_rows, require_one_side
    from transduce.files.pairs import ReadReport
    from transduce.language_model.documents import read_documents

    for file in files:
        if not document and not has_rows(file):
            require_one_side(file)
            yield from read_lines(file)
            continue
        report = ReadReport()
        for (text,) in read_documents([(str(file),)], report):
            yield text
        if report.left_out:  # a line of output for each document is needed
            raise ConfigError(f"{file} cannot be scored row by row: {'; '.join(report.lines())}")
