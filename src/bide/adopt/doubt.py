"""When a run can't know what became of a batch that an earlier run had taken: what it says, and what its user may answer."""

from typing import Literal, TypeAlias

from bide.core.amounts import plural
from bide.engines.base import OPERATION_MS
from bide.errors import BideError

SURE = OPERATION_MS / 1000 - 60  # seconds since a take in which its put can be repeated; a minute is for clocks that differ

Doubt: TypeAlias = Literal["stop", "send", "give-back", "forget"]
"""What to do with a batch whose put may have been done, when that is too long ago to find out."""


class InDoubt(BideError):
    """A run was stopped between the take and the finish of a batch, too long ago to repeat its put. Nothing was changed."""

    def __init__(self, count: int, age: float, *, unsure: bool = False) -> None:
        what = (
            f"A run was stopped while it moved {plural(count, 'message')}, and workers may have begun some of them before they "
            "were told not to. Look in their logs, then run this command again with one more option: --doubtful send, if none "
            "was begun; --doubtful forget, if all were; --doubtful give-back, if the old system is to have them."
            if unsure
            else f"A run was stopped {age / 60:,.0f} minutes ago while it moved {plural(count, 'message')}, and the queue no "
            "longer knows whether it got them. Look for them with `bide list`, then run this command again with one more "
            "option: --doubtful send, if the queue has none of them; --doubtful forget, if it has them; --doubtful give-back, "
            "if the old consumers are to have them."
        )
        super().__init__(what)
        self.count: int = count


class OtherQueue(BideError):
    """A run was stopped while it moved messages to another queue. Nothing was changed."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"A run was stopped while it moved {plural(count, 'message')} to another queue, which may have them. First run the "
            "same command with the URL of that queue, as it was written then: it goes on with them. If that queue is gone, add "
            "--doubtful give-back: they go back to where they were."
        )
        self.count: int = count
