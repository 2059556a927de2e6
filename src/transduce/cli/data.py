"""`transduce data`: the commands for corpora."""

import typer

from transduce.cli.data_check import check
from transduce.cli.data_get import get
from transduce.cli.options import Command

data = typer.Typer(help="Download and check parallel corpora.", no_args_is_help=True, rich_markup_mode=None)
for command in (get, check):
    data.command(cls=Command)(command)
