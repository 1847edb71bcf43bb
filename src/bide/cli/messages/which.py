"""Which message is meant: its id alone, or a topic with --key."""

from typing import NamedTuple


class Which(NamedTuple):
    name: str  # the id, or the topic when there is a key
    key: str | None

    @property
    def id(self) -> str | None:
        return self.name if self.key is None else None

    @property
    def topic(self) -> str | None:
        return None if self.key is None else self.name

    def __str__(self) -> str:
        return f"Message {self.name}" if self.key is None else f"The message of {self.name} with the key {self.key!r}"
