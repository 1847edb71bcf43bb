"""Which message is meant: its id alone, or a topic with --key."""

from typing import NamedTuple

from bide.cli.output.out import tell
from bide.queue import Queue

SHORTEST = 16  # characters of an id


class Which(NamedTuple):
    name: str  # the id, or the topic when there is a key
    key: str | None

    @property
    def id(self) -> str | None:
        return self.name if self.key is None else None

    @property
    def topic(self) -> str | None:
        return None if self.key is None else self.name

    def say_if_no_id(self, queue: Queue) -> None:
        """A word to somebody who has named what is no id: perhaps a topic, or a key."""
        if self.key is not None:
            return
        if self.name in queue.topics():
            tell(f"bide: {self.name} is a topic. Name one of its messages by its id, or by its key: {self.name} --key KEY")
        elif len(self.name) < SHORTEST:
            tell(f"bide: {self.name} is no id. A message is also known by its key in its topic: TOPIC --key {self.name}")

    def __str__(self) -> str:
        return f"Message {self.name}" if self.key is None else f"The message of {self.name} with the key {self.key!r}"
