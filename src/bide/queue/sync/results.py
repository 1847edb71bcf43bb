# Generated from ../aio/results.py by tools/unasync.py; change that file instead.
"""The queue's verb for kept results."""

from typing import Any

from bide.queue.results import which
from bide.queue.sync.session import Session
from bide.types import Duration, Sent


class ResultVerbs:
    """What Queue can do with the results that tasks with keep= return."""

    session: Session

    def result(self, message: str | Sent, *, timeout: Duration | None = None) -> Any:
        """Return what the task returned for a message, of a task with `keep=`. Wait until it is done, at most for `timeout`.

        - timeout: 0 looks once; without one, wait as long as it takes.

        Raises ResultPending if the message is not done in time, ResultFailed if it is a dead letter, ResultCancelled if it was
        cancelled or purged or has expired, ResultNotKept if what the task returned was too large, and ResultUnknown if there
        never was such a message or its time is over. All of them are NoResult. Raises BadOption if this queue has the message's
        task, and that has no `keep=`.
        """
        return self.session.result(which(message), timeout)
