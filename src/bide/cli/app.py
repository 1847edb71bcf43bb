"""The command line as a whole: its commands, and how each ends with an exit code and at most one sentence.

Errors that are not ours, such as those of a user's module, keep their traceback.
"""

import errno
import sys
from collections.abc import Sequence
from typing import Annotated, cast

import typer

import bide
from bide.cli import (
    adopt,
    dead,
    demo,
    doctor,
    layout,
    messages,
    metrics,
    move,
    remove,
    schedules,
    send,
    topics,
    watch,
    worker,
    workers,
)
from bide.cli.exits import Exit
from bide.cli.output import Unwritable, discard, flush, note, prepare_streams
from bide.errors import BideError, OutcomeUnknown
from bide.ids import exact_version

app: typer.Typer = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bide {exact_version(bide.__version__)}")
        raise typer.Exit


@app.callback(
    epilog="For examples, run bide COMMAND --help. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 RUNNING, 4 GONE, 6 DEAD, "
    "130 Ctrl-C.",
)
def _bide(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Delayed messages: on time, at least once, until you cancel them."""


for _section in (
    send.section,
    messages.section,
    remove.section,
    topics.section,
    watch.section,
    workers.section,
    remove.of_topics,
    schedules.section,
    dead.section,
    worker.section,
    demo.section,
    doctor.section,
    send.of_system,
    metrics.section,
    layout.section,
    move.section,
):
    app.registered_commands += _section.typer.registered_commands

app.add_typer(
    adopt.section.typer, name="adopt", help=adopt.HELP, epilog=adopt.EPILOG, rich_help_panel="System", no_args_is_help=True
)

_command = typer.main.get_command(app)

# What typer raises for a command line that it can't take. Some releases bring a click of their own: so no import of click.
_Refused = cast(type[Exception], typer.BadParameter.__bases__[0].__bases__[0])

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, that of the process unless another is given."""
    prepare_streams()
    try:
        code = _run(arguments)
        flush()
    except typer.Exit as done:
        return int(done.exit_code)
    except Unwritable as error:
        discard()
        note(f"bide: {error.strerror or error}.")
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.STOPPED
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = _command(None if arguments is None else list(arguments), prog_name="bide", standalone_mode=False)
        return code if isinstance(code, int) else Exit.OK
    except BideError as error:
        note(f"bide: {error}")
        if isinstance(error, OutcomeUnknown) and error.operation is not None:
            note(f"To retry without a duplicate, add --operation {error.operation}")
        return Exit.FAILED
    except _Refused as error:
        return _refused(error, sys.argv[1:] if arguments is None else arguments)
    except typer.Abort:
        return Exit.STOPPED
    except OSError as error:
        if error.errno in _FULL and error.filename is None:  # a write, as that of typer's help
            raise Unwritable(error.errno, error.strerror) from None
        raise


def _refused(error: Exception, arguments: Sequence[str]) -> int:
    context, said = getattr(error, "ctx", None), getattr(error, "format_message", error.__str__)()
    command_path = " ".join(["bide", *arguments[:1]]) if context is None else context.command_path
    if type(error).__name__ != "NoArgsIsHelpError":
        note(f"{command_path}: {_in_one_line(said)}")
        note(f"Try: {command_path} --help")
    elif said:
        note(said)
    return Exit.USAGE


def _in_one_line(said: str) -> str:
    """Some releases of typer list choices one a line, and say which of their checks it was."""
    return " ".join(said.replace("Value error, ", "").replace("Input should be", "it has to be").split())
