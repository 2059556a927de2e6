"""`transduce data`: commands for corpora."""

import typer

from transduce.cli.data_check import check

app = typer.Typer(help="Look after corpora.", no_args_is_help=True)
app.command()(check)
