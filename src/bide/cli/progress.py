"""A progress bar on standard error for work that takes long: only on a terminal, and removed when the work is done."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from bide.cli.output import console, is_terminal

Moved: TypeAlias = Callable[[int], Any]
"""Called with how much is done so far."""


@contextlib.contextmanager
def progress(what: str, total: int | None, *, shown: bool = True) -> Iterator[Moved]:
    """A bar, or a pulse while the total is unknown."""
    if not shown or not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    words = "{task.completed:,.0f}" + ("" if total is None else f" of {total:,}")
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(words), TimeRemainingColumn())
    bar = Progress(*columns, console=console(sys.stderr), transient=True, redirect_stdout=False, redirect_stderr=False)
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
