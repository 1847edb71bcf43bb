"""A verb that waits for its turn to write."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from bide.engines.sqlite.turn import Turn


class Job:
    def __init__(self, work: Callable[[Turn], Any], *, lasting: bool) -> None:
        self.work = work
        self.lasting = lasting  # whether it must have reached the disk before it is answered
        self.answer: Future[Any] = Future()
        self._begun = False

    def begin(self) -> bool:
        """From here on, nobody can cancel it. False: somebody has, and it is not done."""
        if not self._begun and not self.answer.cancelled():
            self._begun = self.answer.set_running_or_notify_cancel()
        return self._begun

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):  # it was cancelled meanwhile
            self.answer.set_exception(error)
