"""A progress bar on standard error for work that takes long: only on a terminal, and removed when the work is done."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

from bide.cli.output import console, is_terminal, note
from bide.errors import BideError

LOOK = 0.1  # seconds between two looks at how much is left

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


Count = TypeVar("Count", bound=int)


def with_progress(work: Callable[[], Count], left: Callable[[], int], what: str, total: int) -> Count:
    """Do work that answers only when it is done, and poll meanwhile how much is left."""
    try:
        return _polled(work, left, what, total) if is_terminal(sys.stderr) else work()
    except KeyboardInterrupt:
        note("Stopped. What was done by then stays done.")
        raise


def _polled(work: Callable[[], Count], left: Callable[[], int], what: str, total: int) -> Count:
    answer: list[Count] = []
    failure: list[BaseException] = []
    ended = threading.Event()

    def in_a_thread() -> None:
        try:
            answer.append(work())
        except BaseException as error:
            failure.append(error)
        finally:
            ended.set()

    with progress(what, total) as moved:
        threading.Thread(target=in_a_thread, daemon=True).start()  # Ctrl-C need not wait for it: it works page by page
        while not ended.wait(LOOK):
            with contextlib.suppress(BideError):  # a poll that fails is no failure of the work
                moved(max(0, total - left()))
        moved(total)
    if failure:
        raise failure[0]
    return answer[0]
