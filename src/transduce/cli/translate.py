"""`transduce translate`."""

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from transduce.cli.options import ModelOption

if TYPE_CHECKING:
    from transduce.translator import Translation, Translator


def translate(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="Files to translate, or text in quotes; standard input if none.", metavar="FILE|TEXT"),
    ] = None,
    model: ModelOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here, not to standard output.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after the last complete line of --output.")] = False,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy [4].")] = None,
    nbest: Annotated[int | None, typer.Option(help="Translations for each line, with --jsonl [1].")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="More favours longer outputs [0.6].")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens an output may have at most.")] = None,
    max_extra: Annotated[int | None, typer.Option(help="Tokens an output may have beyond its input's [50].")] = None,
    no_repeat: Annotated[int | None, typer.Option(help="No run of so many tokens twice; 0 is off [0].")] = None,
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
    engine: Annotated[str, typer.Option(help="auto (the fastest there is), gpu, native or plain.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Of the CPU; as many as it has cores.", min=1)] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Source tokens times beam worked on at once; as many as fit.", min=1)
    ] = None,
) -> None:
    """Translate text, line by line: one line out for each line in, in order.

    An argument that names a file is read; any other is text, unless it looks like the path of a file that is not there.
    """
    from transduce.cli.inputs import STANDARD_INPUT, as_input, lines_of
    from transduce.cli.translate_progress import Progress
    from transduce.errors import ConfigError
    from transduce.models.card import find_model
    from transduce.translator import Translator

    if nbest is not None and nbest > 1 and not jsonl:
        raise ConfigError("--nbest needs --jsonl: plain output is one line for each line")
    if resume and not (output and words):
        raise ConfigError("--resume needs --output and files to read: it goes on where the output file ends")
    inputs = [as_input(word) for word in words or []] or [STANDARD_INPUT]
    if (
        output
        and output.exists()
        and any(isinstance(one, Path) and one != STANDARD_INPUT and output.samefile(one) for one in inputs)
    ):
        raise ConfigError(f"--output would overwrite {output}, which is being read; name another file")
    typed = inputs == [STANDARD_INPUT] and sys.stdin.isatty()
    found = find_model(model)
    if found.parent.name == "checkpoints" and found != model:
        _say(f"{model} is not finished; using its newest checkpoint, {found.name}")
    given = {
        "beam": beam, "nbest": nbest, "length_penalty": length_penalty, "max_length": max_length,
        "max_extra": max_extra, "no_repeat": no_repeat, "sample": sample or None, "temperature": temperature,
        "top_k": top_k, "top_p": top_p, "seed": seed,
    }  # fmt: skip
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    translator = Translator.load(
        found, device=device, engine=engine, threads=threads, batch_tokens=batch_tokens, **options
    )
    if sys.stderr.isatty():
        _say(f"engine: {translator.engine_for(translator.config).description}")
    done = _complete_lines(output) if resume and output else 0
    if done:
        _say(f"{output} has {done:,} lines already; going on with line {done + 1:,}")
    with ExitStack() as stack:
        out: TextIO = sys.stdout
        if output:
            out = stack.enter_context(output.open("a" if resume else "w", encoding="utf-8"))
        progress = stack.enter_context(Progress(inputs, done, typed))
        lines = lines_of(inputs)
        if sum(1 for _ in islice(lines, done)) < done:
            raise ConfigError(f"{output} has more lines than there are to translate: it is of other text")
        common: dict[str, Any] = {"align": jsonl, "long": long}
        for text, best in _translated(translator, lines, prefix, done + 1, typed, common):
            out.write((_record(translator, text, best) if jsonl else best[0].text.replace("\n", " ")) + "\n")
            if progress.line_done():
                out.flush()


def _translated(
    translator: "Translator", lines: Iterator[str], prefix: str, first_line: int, typed: bool, common: dict[str, Any]
) -> Iterator[tuple[str, list["Translation"]]]:
    """Every line with its translations; what a person types is answered line by line."""
    if typed:
        for number, text in enumerate(lines, start=first_line):
            yield text, translator.hypotheses([text], prefixes=[prefix], first_line=number, **common)[0]
    else:
        kept: deque[str] = deque()  # lines that were read ahead of their translations
        ahead = _remember(lines, kept)
        for best in translator.stream(ahead, prefixes=repeat(prefix), first_line=first_line, **common):
            yield kept.popleft(), best


def _remember(lines: Iterable[str], kept: deque[str]) -> Iterator[str]:
    for line in lines:
        kept.append(line)
        yield line


def _record(translator: "Translator", text: str, best: list["Translation"]) -> str:
    record = {
        "source": text,
        "source_tokens": translator.source_tokens(text),
        "translations": [asdict(translation) for translation in best],
    }
    return json.dumps(record, ensure_ascii=False)


def _complete_lines(output: Path) -> int:
    """How many lines the file has; a last one that was cut short is taken off."""
    if not output.exists():
        return 0
    with output.open("r+b") as file:
        lines = end = 0
        for line in file:
            if line.endswith(b"\n"):
                lines, end = lines + 1, end + len(line)
        file.truncate(end)
    return lines


def _say(line: str) -> None:
    print(f"transduce: {line}", file=sys.stderr)
