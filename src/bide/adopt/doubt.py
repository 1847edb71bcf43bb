"""When a run can't know what became of a batch that an earlier run had taken: what it says, and what its user may answer."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from bide.adopt.source import Refused
from bide.core.formats import iso, plural
from bide.engines.base import OPERATION_MS, NewMessage
from bide.errors import BideError

SURE = OPERATION_MS / 1000 - 60  # seconds since a take in which its put can be repeated; a minute is for clocks that differ

Doubt: TypeAlias = Literal["stop", "send", "give-back", "forget"]
"""What to do with a batch whose put may have been done, when that is too long ago to find out."""


def _told(message: NewMessage) -> str:
    """What it can be found by in another queue, where it has another id."""
    key = "" if message.key is None else f", with the key {message.key!r}"
    return key if message.at is None else f"{key}, due at {iso(message.at)}"


class InDoubt(BideError):
    """A run was stopped between the take and the finish of a batch, too long ago to repeat its put. Nothing was changed."""

    def __init__(self, count: int, age: float, example: NewMessage | None = None, *, unsure: bool = False) -> None:
        first = "" if example is None else f" The first is one of topic {example.topic}{_told(example)}."
        what = (
            f"A run was stopped while it moved {plural(count, 'message')}, and workers may have begun some of them before they "
            "were told not to. Look in their logs, then run this command again with one more option: --doubtful send, if none "
            "was begun; --doubtful forget, if all were; --doubtful give-back, if the old system is to have them."
            if unsure
            else f"A run was stopped {age / 60:,.0f} minutes ago while it moved {plural(count, 'message')}, and the new queue "
            f"no longer knows whether it got them.{first} Look there with `bide list` for several of them: it may have a part. "
            "Then run this command again with one more option: --doubtful send, if the new queue has none of them; --doubtful "
            "forget, if it has them all; --doubtful give-back, if they are to go back to where they were."
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


class Unread(BideError):
    """What an earlier run was moving can't be read with the options of this one. Nothing was changed."""

    def __init__(self, held: Sequence[Refused]) -> None:
        super().__init__(
            f"Of what a run was moving when it was stopped, {plural(len(held), 'message')} can't be read now, and the queue "
            f"may have them. One {held[0].reason}, for example: {held[0].entry}. Give the options of that run; or --doubtful "
            "give-back, if what can't be read is to go back to where it was."
        )
