"""Where the function of a task was written, and by which name others know it."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self


class Place:
    """One line of a file is one function, however often it runs. `task`: the name of its task, for what has none of its own."""

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        written = _written(function)
        code, names = getattr(written, "__code__", None), getattr(written, "__globals__", {})
        self.module: str = written.__module__
        self.name: str = getattr(written, "__qualname__", task)
        self._line = (code.co_filename, code.co_firstlineno) if code is not None else None
        self._spec = names.get("__spec__")  # a reload makes a new one; kept, so that no other gets its id
        self._run = (code.co_filename if code is not None else None, id(names), id(self._spec))

    def is_anew(self, other: Self) -> bool:
        """Whether this is the other one, defined anew by a cell, a module or a function that is run again.

        Another line is the same function only where the name is and the file has been run anew since, perhaps edited: as
        another cell, or loaded again.
        """
        same = (self.module, self.name) == (other.module, other.name)
        return same and (self._line == other._line or self._run != other._run)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}()"


def _written(function: Any) -> Any:
    """The function as it was written, under its decorators and in its partials."""
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    return function


def name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def module_of(function: Callable[..., Any]) -> str:
    """The module as others import it, also while it is run as a script."""
    name = str(getattr(function, "__module__", None) or "task")
    if name not in ("__main__", "__mp_main__"):  # the second in a process that multiprocessing has spawned
        return name
    script = sys.modules.get(name)
    spec = getattr(script, "__spec__", None)
    if spec is not None:
        return str(spec.name.removesuffix(".__main__"))
    path = getattr(script, "__file__", None)
    return name if path is None else Path(path).stem
