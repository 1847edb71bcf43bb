"""The command `bide`: for people at a terminal. Nothing else in the package imports this room."""

import sys

from bide.errors import BideError

_BROUGHT_BY_THE_EXTRA = {"typer", "rich", "click"}


def main() -> int:
    """Run the command line; what it gives back is the exit code."""
    try:
        from bide.cli.app import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _BROUGHT_BY_THE_EXTRA:
            raise
        print(f'The bide command needs the {missing} package: pip install "bide[cli]"', file=sys.stderr)
        return 2
    try:
        app(prog_name="bide")
    except BideError as error:
        print(f"bide: {error}", file=sys.stderr)
        return 1
    return 0
