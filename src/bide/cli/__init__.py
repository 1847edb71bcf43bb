"""The command `bide`: for people at a terminal. Nothing else in the package imports this room."""

import sys
from collections.abc import Sequence

_BROUGHT_BY_THE_EXTRA = {"typer", "rich", "click"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; what it gives back is the exit code."""
    try:
        from bide.cli.app import run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _BROUGHT_BY_THE_EXTRA:
            raise
        print(f'The bide command needs the {missing} package: pip install "bide[cli]"', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return run(arguments)
