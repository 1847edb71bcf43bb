"""A verb's work on its way through the writer, and its answer."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

from bide.engines.sqlite.transaction import Transaction


class Answer:
    """What a thread gets that takes its turn under the writer's lock: a Future without what it needs to sleep for one.

    Whoever works for the thread holds the lock, and the thread looks only when it has that itself.
    """

    __slots__ = ("_done", "_error", "_result")

    def __init__(self) -> None:
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return False

    def set_running_or_notify_cancel(self) -> bool:
        return True

    def set_result(self, result: Any) -> None:
        self._result = result
        self._done = True

    def set_exception(self, error: BaseException | None) -> None:
        if self._done:
            raise InvalidStateError
        self._error = error
        self._done = True

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        if self._error is None:
            return self._result
        error, self._error = self._error, None  # its traceback will hold this answer: in a circle, both would stay
        try:
            raise error
        finally:
            del error


class Job:
    """A verb's work that waits for a transaction."""

    __slots__ = ("_begun", "answer", "durable", "work")

    def __init__(
        self, work: Callable[[Transaction], Any], *, durable: bool, answer: "Answer | Future[Any] | None" = None
    ) -> None:
        self.work: Callable[[Transaction], Any] = work
        self.durable: bool = durable  # whether it must be on the disk before it is answered
        self.answer: Answer | Future[Any] = Answer() if answer is None else answer
        self._begun = False

    def begin(self) -> bool:
        """From now on nobody can cancel the job. False: it was cancelled before, so it must not be done."""
        if not self._begun and not self.answer.cancelled():
            self._begun = self.answer.set_running_or_notify_cancel()
        return self._begun

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):  # it was cancelled meanwhile
            self.answer.set_exception(error)
