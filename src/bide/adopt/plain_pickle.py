"""Reads plain data out of a pickle: numbers, text, lists, dicts. A pickle that wants to import or call something is refused.

A pickle is a program of a small stack machine. Here are those of its instructions that make plain data, and no others.
"""

import math
import pickletools
from collections.abc import Callable
from typing import Any

from bide.adopt.source import UnreadableEntry

MOST = 1_000_000  # instructions, and characters and values of what comes out: more than a body of the largest size has
MARK = object()

_VALUES = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
    ]
)
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_SILENT = frozenset({"PROTO", "FRAME"})


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def marked(self) -> list[Any]:
        """What is above the last mark, which goes, too."""
        place = len(self.stack) - 1
        while self.stack[place] is not MARK:
            place -= 1
            if place < 0:
                raise IndexError
        above = self.stack[place + 1 :]
        del self.stack[place:]
        return above

    def do(self, name: str, arg: Any) -> None:
        stack = self.stack
        if name in _VALUES:
            if isinstance(arg, float) and not math.isfinite(arg):
                raise UnreadableEntry("has arguments that JSON can't express")
            stack.append(arg)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(MARK)
        elif name in _TUPLES:
            number = _TUPLES[name]
            stack[-number:] = [tuple(stack[-number:])]
        elif name in ("TUPLE", "LIST"):
            above = self.marked()
            stack.append(tuple(above) if name == "TUPLE" else above)
        elif name in ("DICT", "SETITEMS", "SETITEM", "APPENDS", "APPEND"):
            self.fill(name)
        else:
            self.remember(name, arg)

    def fill(self, name: str) -> None:
        """Put what is on the stack into a list or dict."""
        stack = self.stack
        if name == "DICT":
            above: list[Any] = self.marked()
            stack.append({})
        elif name in ("SETITEMS", "APPENDS"):
            above = self.marked()
        else:
            number = 1 if name == "APPEND" else 2
            above = stack[-number:]
            del stack[-number:]
        if name.startswith("APPEND"):
            if not isinstance(stack[-1], list):
                raise TypeError
            stack[-1].extend(above)
        else:
            if not isinstance(stack[-1], dict):
                raise TypeError
            stack[-1].update(zip(above[::2], above[1::2], strict=True))

    def remember(self, name: str, arg: Any) -> None:
        if name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[arg] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[arg])
        elif name not in _SILENT:
            raise UnreadableEntry(f"has arguments that are objects of Python, not plain data (its pickle needs {name})")


def plain(pickled: bytes) -> Any:
    """The data of a pickle. Raises Unreadable if it is no pickle, or one of anything else than plain data."""
    machine = _Machine()
    try:
        for count, (instruction, arg, _) in enumerate(pickletools.genops(pickled)):
            if instruction.name == "STOP" or count > MOST:
                break
            machine.do(instruction.name, arg)
        [value] = machine.stack
        too_large = _weight(value, {}) > MOST
    except UnreadableEntry:
        raise
    except Exception:  # of genops, which raises what it likes; and of a pickle whose instructions do not fit together
        raise UnreadableEntry("has arguments that can't be read") from None
    if too_large:
        raise UnreadableEntry("has arguments that are too large")
    return value


def _weight(value: Any, known: dict[int, int]) -> int:
    """How large the value is written out. Parts that a pickle names again and again count each time, and are looked at once."""
    if isinstance(value, str):
        return 1 + len(value)
    if not isinstance(value, list | tuple | dict):
        return 1
    if id(value) not in known:
        parts = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_weight(part, known) for part in parts)
    return known[id(value)]
