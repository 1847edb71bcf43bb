"""Which connections of callers a call uses: two savepoints that end in each other's place would undo what was accepted.

Ctrl-C may come wherever something is called, also in the `__exit__` of a context manager. So each caller writes it out:

    number, mine = id(connection), object()
    try:
        take(number, mine)
        ...
    finally:
        if number in in_use and in_use[number] is mine:
            del in_use[number]
"""

from bide.errors import Unsupported

ONE_CALL = (
    "connection= is in the middle of another call, and a transaction takes one at a time: await each call before you make "
    "the next one, or use send_many. Nothing was changed by this call."
)
in_use: dict[int, object] = {}  # by the identity of the driver's connection


def take(number: int, mine: object) -> None:
    if in_use.setdefault(number, mine) is not mine:
        raise Unsupported(ONE_CALL)
