"""The command line as a whole: which commands there are, and in which order the help lists them."""

from typing import Annotated

import typer

import bide
from bide.cli.commands import here, messages, topics, work

app: typer.Typer = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bide {bide.__version__}")
        raise typer.Exit


@app.callback(
    epilog="Every command has examples: bide COMMAND --help. Exit codes: 0 done, 1 failed, 2 not understood, 3 RUNNING, "
    "4 GONE, 6 DEAD, 130 Ctrl-C.",
)
def _bide(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Delayed messages: on time, at least once, until you cancel them."""


_FAMILIES = (("Messages", messages.family), ("Topics", topics.family), ("Tasks", work.family), ("Bide itself", here.family))
for _name, _family in _FAMILIES:
    for _command in _family.registered_commands:
        _command.rich_help_panel = _name
        app.registered_commands.append(_command)
