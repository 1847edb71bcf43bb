"""A verb's work on its way through the writer, and its answer."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from bide.engines.sqlite.transaction import Transaction


class Job:
    """A verb's work that waits for a transaction."""

    def __init__(self, work: Callable[[Transaction], Any], *, durable: bool) -> None:
        self.work = work
        self.durable = durable  # whether it must be on the disk before it is answered
        self.answer: Future[Any] = Future()
        self._begun = False

    def begin(self) -> bool:
        """From now on nobody can cancel the job. False: it was cancelled before, so it must not be done."""
        if not self._begun and not self.answer.cancelled():
            self._begun = self.answer.set_running_or_notify_cancel()
        return self._begun

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):  # it was cancelled meanwhile
            self.answer.set_exception(error)
