"""`transduce data`: the commands for corpora."""

import typer

from transduce.cli.data_check import check

data = typer.Typer(help="Look after text to train on.", no_args_is_help=True, rich_markup_mode=None)
for command in (check,):
    data.command()(command)
