"""How a process ends that a handler has forked off: it is the handler's child, and no second worker."""

import contextlib
import os
import sys
import traceback
from typing import NoReturn


def end(error: BaseException | None) -> NoReturn:
    """It has come to the handler's end, by this error or without one. Nothing of the worker that it copied is run or closed."""
    code = _code(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _code(error: BaseException | None) -> int:
    """As the interpreter has it."""
    if error is None:
        return 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return (error.code or 0) & 0xFF
    with contextlib.suppress(Exception):
        if isinstance(error, SystemExit):
            sys.stderr.write(f"{error.code}\n")
        else:
            traceback.print_exception(error)
    return 1
