"""What a writer has read in its file, and need not read again until somebody else writes to it."""

from typing import NamedTuple

MOST_TOPICS = 10_000  # whose numbers are remembered


class Kept(NamedTuple):
    """A namespace's time in the file. It has the fields of `EngineTime.row`."""

    raw: int
    mark: int
    token: int

    def covers(self, row: tuple[int, int, int], within: int) -> bool:
        """Whether the file has this token, and a time that is hardly earlier. A clock that was set back is news."""
        raw, mark, token = row
        return token == self.token and 0 <= raw - self.raw <= within and mark - self.mark <= within


class Seen:
    """Thrown away when another connection has written, and when a transaction of this one is rolled back."""

    __slots__ = ("_topics", "kept")

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], int] = {}
        self.kept: dict[str, Kept] = {}  # of each namespace

    def topic(self, space: str, name: str) -> int | None:
        return self._topics.get((space, name))

    def remember_topic(self, space: str, name: str, number: int) -> None:
        if len(self._topics) >= MOST_TOPICS:
            self._topics.clear()
        self._topics[space, name] = number

    def forget_topic(self, number: int) -> None:
        for name in [name for name, known in self._topics.items() if known == number]:
            del self._topics[name]
