"""Which calls need not tell others of a topic, as they were told a moment ago, and which of them have to tell afterwards.

A receiver that was told looks at once, and again after each of AGAIN. So what is committed before the last of these is found,
and a client tells of a topic about fifty times a second, however much it sends: commits that notify wait for one another. Only
the end of a call shows whether it was in time, and whether the call that told has succeeded.
"""

from collections.abc import Collection

from bide.engines.postgres.bounds import Recent

QUIET = 0.02  # seconds from the beginning of a call that tells, in which others begin that need not tell
IN_TIME = 0.07  # seconds from the same instant, in which they have to end
AGAIN = (0.025, 0.075)  # seconds after a notification at which its receiver looks again


class Telling:
    """Of one kind of call. Times are of time.monotonic."""

    def __init__(self) -> None:
        self._begun: Recent = Recent()
        self._done: Recent = Recent()  # by when it began

    def quiet(self, topics: Collection[str], now: float) -> list[str]:
        """Those of the topics of which a call that begins now need not tell. It tells of the others."""
        quiet = [topic for topic in topics if now < self._begun.at(topic) + QUIET]
        self._begun.note(set(topics).difference(quiet), now)
        return quiet

    def told(self, topics: Collection[str], began: float) -> None:
        """A call that began then has told of them, and is committed."""
        self._done.note(topics, began)

    def untold(self, quiet: Collection[str], now: float) -> list[str]:
        """Those of a call's quiet topics of which others have to be told, now that it has ended."""
        late = [topic for topic in quiet if now > self._done.at(topic) + IN_TIME]
        self._begun.note(late, now)
        return late


def look_again(heard: float, looked: float) -> float | None:
    """When to look after a notification, if one has looked since: at a time that is later than that."""
    return next((heard + after for after in AGAIN if looked < heard + after), None)
