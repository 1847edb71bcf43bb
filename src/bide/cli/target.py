"""The message that a command is about, and what became of it."""

from typing import TYPE_CHECKING, NamedTuple

from bide.cli.exits import Exit
from bide.cli.output import note
from bide.types import CancelResult, Info, RescheduleResult

if TYPE_CHECKING:
    from bide.queue import Queue

ID_LENGTH = 16  # characters of the shortest id
CODES = {"RUNNING": Exit.RUNNING, "DEAD": Exit.DEAD, "GONE": Exit.GONE}
ENDS = (
    "Exit code 0: {done}. 3: RUNNING, a worker has the message. 4: GONE, the message has ended or was never sent. "
    "6: DEAD, the message is a dead letter."
)


class Target(NamedTuple):
    """The message that a command is about: named by its id, or by its topic and --key."""

    name: str
    key: str | None

    @property
    def id(self) -> str | None:
        return self.name if self.key is None else None

    @property
    def topic(self) -> str | None:
        return None if self.key is None else self.name

    def note_if_no_id(self, queue: "Queue") -> None:
        """Say how to name a message, if this is the name of a topic or perhaps a key."""
        if self.key is not None:
            return
        if queue.capabilities.inspect and self.name in queue.topics():
            note(f"bide: {self.name} is a topic. Give the id of a message, or the topic and a key: {self.name} --key KEY")
        elif len(self.name) < ID_LENGTH:
            note(f"bide: {self.name} is not an id. If it is a key, give its topic, too: TOPIC --key {self.name}")

    def __str__(self) -> str:
        return f"Message {self.name}" if self.key is None else f"The message with key {self.key!r} in {self.name}"


def refused(result: CancelResult | RescheduleResult, target: Target, dead: Info | None) -> str:
    """Why nothing was changed, and what to do."""
    if result.name == "RUNNING":
        return f"RUNNING: {target} was not changed, because a worker has it."
    if result.name == "DEAD":
        topic = "TOPIC" if dead is None else dead.topic
        return (
            f"DEAD: {target} is a dead letter. `bide requeue {topic} {target.id}` delivers it again, "
            f"`bide purge {topic} {target.id}` deletes it."
        )
    return f"GONE: {target} has ended, or was never sent."
