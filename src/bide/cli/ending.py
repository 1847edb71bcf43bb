"""However a command ends, it ends with an exit code and at most one sentence on standard error.

Errors that are not ours, such as those of a user's module, keep their traceback.
"""

import errno
import sys
from collections.abc import Sequence
from typing import cast

import typer

from bide.cli.app import app
from bide.cli.exits import Exit
from bide.cli.output.out import Unwritable, flush, give_up, prepare, tell
from bide.errors import BideError, OutcomeUnknown

_command = typer.main.get_command(app)

# What typer raises for a command line that it can't take. Some releases bring a click of their own: so no import of click.
_Refused = cast(type[Exception], typer.BadParameter.__bases__[0].__bases__[0])

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, that of the process unless another is given."""
    prepare()
    try:
        code = _run(arguments)
        flush()
    except typer.Exit as done:
        return int(done.exit_code)
    except Unwritable as error:
        give_up()
        tell(f"bide: {error.strerror or error}.")
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.STOPPED
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = _command(None if arguments is None else list(arguments), prog_name="bide", standalone_mode=False)
        return code if isinstance(code, int) else Exit.OK
    except BideError as error:
        tell(f"bide: {error}")
        if isinstance(error, OutcomeUnknown) and error.operation is not None:
            tell(f"To try again and have it once at most: --operation {error.operation}")
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
    command = " ".join(["bide", *arguments[:1]]) if context is None else context.command_path
    if type(error).__name__ != "NoArgsIsHelpError":
        tell(f"{command}: {_in_one_line(said)}")
        tell(f"Try: {command} --help")
    elif said:
        tell(said)
    return Exit.USAGE


def _in_one_line(said: str) -> str:
    """Some releases of typer list choices one a line, and say which of their checks it was."""
    return " ".join(said.replace("Value error, ", "").replace("Input should be", "it has to be").split())
