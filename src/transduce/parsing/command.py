"""`transduce parse`."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from transduce.cli.messages import log
from transduce.cli.options import DeviceOption, ForceOption, MbrOption, ThreadsOption, model_option, search_options
from transduce.search.options import SearchOptions

if TYPE_CHECKING:
    from transduce.parsing.trees import Tree

Format = Literal["brackets", "text", "svg"]


@search_options("beam", "length_penalty")
def parse(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="Files to parse, or text in quotes.", metavar="FILE|TEXT", show_default="standard input"),
    ] = None,
    model: Annotated[
        list[Path] | None,
        model_option(
            "A run or a model folder of the task parse; several with the same vocabulary are an ensemble.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        Format, typer.Option(help="How to write a tree: in brackets on one line, drawn as text, or drawn as SVG.")
    ] = "brackets",
    words: Annotated[
        bool, typer.Option("--words", help="The text consists of words separated by spaces; do not split it further.")
    ] = False,
    mbr: MbrOption = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write.", show_default="standard output")
    ] = None,
    force: ForceOption = False,
    *,
    options: SearchOptions,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Source tokens times beam in one batch.", min=1, show_default="automatic")
    ] = None,
) -> None:
    """Parse English sentences, one per line, to constituency trees.

    Every tree has exactly the words of its sentence. An argument that names a file is read; any other is text. The
    model is one that was trained with --task parse. A search option that is not given has the value stored with the
    model, usually a beam of 21 and a length penalty of 0.3.
    """
    from transduce.cli.inputs import STANDARD_INPUT, STANDARD_OUTPUT, as_input, lines_of
    from transduce.cli.outputs import refuse_overwriting, require_line_output
    from transduce.disk import atomic_file
    from transduce.errors import ConfigError
    from transduce.parsing.parser import Parser

    if not model:
        raise ConfigError(
            "there is no bundled parser; name a model with -m, or train one with: transduce train --task parse"
        )
    inputs = [as_input(argument, "parse") for argument in arguments or []] or [STANDARD_INPUT]
    if format == "svg" and (len(inputs) > 1 or isinstance(inputs[0], Path)):
        raise ConfigError("--format svg draws one sentence; give its text as an argument")
    out = None if out == STANDARD_OUTPUT else out
    if out:
        refuse_overwriting(out, inputs, force=force)
        require_line_output(out)
    parser = Parser.load(model, device=device, threads=threads, batch_tokens=batch_tokens, mbr=mbr, **options)
    if sys.stderr.isatty():
        log(f"engine {parser.engine.description}")
    lines = lines_of(inputs)
    sentences: Iterator[str | list[str]] = (line.split() for line in lines) if words else iter(lines)
    typed = inputs == [STANDARD_INPUT] and sys.stdin.isatty()
    trees: Iterable[Tree] = map(parser.parse_one, sentences) if typed else parser.stream(sentences)
    if out:
        with atomic_file(out) as work, work.open("w", encoding="utf-8") as file:
            _write(trees, format, file)
    else:
        _write(trees, format, sys.stdout)


def _write(trees: "Iterable[Tree]", format: Format, file: TextIO) -> None:
    from transduce.parsing.trees import draw_svg, draw_text

    writers: dict[Format, Callable[[Tree], str]] = {"brackets": str, "text": draw_text, "svg": draw_svg}
    for tree in trees:
        lines = writers[format](tree) if tree.children else ""
        file.write(lines + ("\n\n" if format == "text" else "\n"))
        if file.isatty():
            file.flush()
