"""`transduce`: the commands, and how errors are reported."""

import errno
import os
import signal
import sys
from typing import Annotated, Any

import typer

from transduce.cli.messages import log
from transduce.cli.options import Command, Group
from transduce.errors import TransduceError, needs_torch
from transduce.features import Registry
from transduce.version import __version__


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"transduce {__version__}")
        raise typer.Exit


COMMANDS: Registry[Any] = Registry("commands")
_SECTIONS = {
    "Translate and use models": "translate transcribe generate fill embed classify parse score rerank",
    "Train models": "demo init data train backtranslate average shrink shortlist calibrate",
    "Understand models": "info evaluate compare inspect paper",
    "Exchange models": "import export",
    "Serve models, and check the installation": "serve doctor cache",
}
"""The commands of each section of the help."""


def all_commands() -> list[str]:
    """The commands in the order of the help: those of other packages are last."""
    order = " ".join(_SECTIONS.values()).split()
    return sorted(COMMANDS, key=lambda name: order.index(name) if name in order else len(order))


class Program(Group):
    """The program: its help has sections of commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = self.command_rows(ctx)
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([rows.pop(name) for name in names.split() if name in rows])
        if rows:
            with formatter.section("Commands of other packages"):
                formatter.write_dl([*rows.values()])


def make_app(*commands: str) -> typer.Typer:
    """The program with these commands, only whose modules are imported."""
    app = typer.Typer(cls=Program, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(about)
    for name in commands:
        command = COMMANDS[name]
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, cls=Group)
        else:
            app.command(name, cls=Command)(command)
    return app


def __getattr__(name: str) -> Any:
    """`app` is the program with all commands."""
    if name == "app":
        return make_app(*all_commands())
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
            with needs_torch():
                typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
                words = sys.argv[1:2] or typed.split()[1:2]  # completion in zsh, fish and bash
                make_app(*([word for word in words if word in COMMANDS] or all_commands()))()
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
