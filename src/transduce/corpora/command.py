"""`transduce data`: the commands for corpora."""

import typer

from transduce.cli.options import Command
from transduce.corpora.check_command import check
from transduce.corpora.get_command import get

data = typer.Typer(help="Download and check parallel corpora.", no_args_is_help=True, rich_markup_mode=None)
for command in (get, check):
    data.command(cls=Command)(command)
