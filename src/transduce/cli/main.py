"""`transduce`: the commands, and how errors are reported."""

import errno
import os
import signal
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from transduce.cli.messages import log
from transduce.cli.options import Command
from transduce.errors import TransduceError, needs_torch


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"transduce {version('transduce')}")
        raise typer.Exit


_OLD_OPTIONS = {"output": "out", "save": "out"}
"""Earlier names of options, which still work."""

_COMMANDS = {
    "init": "cli.init:init",
    "train": "cli.train:train",
    "translate": "translation.commands.translate:translate",
    "transcribe": "speech.command:transcribe",
    "generate": "language_model.command:generate",
    "fill": "encoders.fill_command:fill",
    "embed": "encoders.embed_command:embed",
    "classify": "classification.command:classify",
    "parse": "parsing.command:parse",
    "inspect": "inspect.command:inspect",
    "evaluate": "translation.commands.evaluate:evaluate",
    "score": "translation.commands.score:score",
    "rerank": "translation.commands.rerank:rerank",
    "calibrate": "translation.commands.calibrate:calibrate",
    "backtranslate": "translation.commands.backtranslate:backtranslate",
    "info": "cli.info:info",
    "compare": "cli.compare:compare",
    "average": "cli.average:average",
    "shrink": "cli.shrink:shrink",
    "shortlist": "translation.commands.shortlist:shortlist",
    "export": "interop.command:export",
    "serve": "serve.command:serve",
    "demo": "cli.demo:demo",
    "doctor": "cli.doctor:doctor",
    "cache": "cli.cache:cache",
    "import": "interop.command:import_model",
    "data": "corpora.command:data",
    "paper": "paper.command:paper",
}
"""The commands, in the order of the help: the function or the group of each, which is imported if it runs."""


def make_app(*commands: str) -> typer.Typer:
    """The program with these commands, only whose modules are imported."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"token_normalize_func": lambda name: _OLD_OPTIONS.get(name, name)},
    )
    app.callback()(about)
    for name in commands:
        module, _, attribute = _COMMANDS[name].partition(":")
        command = getattr(import_module(f"transduce.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=Command)(command)
    return app


def __getattr__(name: str) -> Any:
    """`app` is the program with all commands."""
    if name == "app":
        return make_app(*_COMMANDS)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def about(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train and run Transformer translation models and language models."""


def main() -> None:
    """Run a command; a user error is reported in one line with exit code 2."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that open files are closed
    _open_streams()
    try:
        try:
            named = [word for word in sys.argv[1:2] if word in _COMMANDS]
            with needs_torch():
                make_app(*(named or _COMMANDS))()
        finally:
            sys.stdout.flush()  # so that an error is reported here
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # the reader closed the pipe
            _end_with_closed_pipe()
        raise
    except BrokenPipeError:
        _end_with_closed_pipe()
    except TransduceError as error:
        log(str(error), error=True)
        sys.exit(2)
    except OSError as error:
        _discard_output()
        if error.errno == errno.EBADF:
            log("standard output is closed")
        else:
            log(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        sys.exit(2)
    except Exception as error:
        if os.environ.get("TRANSDUCE_DEBUG"):
            raise
        log(f"internal error, please report it: {error!r} (TRANSDUCE_DEBUG=1 prints a traceback)")
        sys.exit(1)


def _open_streams() -> None:
    """Prepare the standard streams: UTF-8, and no error for names that are not.

    If the shell has closed one, a file that is opened later would take its place: /dev/null takes it instead. Reading
    finds nothing, writing to stdout is an error, and writing to stderr has no effect.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free descriptor: this one
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]


def _end_with_closed_pipe() -> None:
    _discard_output()
    sys.exit(128 + signal.SIGPIPE)


def _discard_output() -> None:
    """Discard what could not be written to stdout: the interpreter would try again when it exits, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
