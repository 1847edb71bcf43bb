"""What happened a moment ago to a topic or a delivery; and which calls need not notify, as another call has just done so.

A receiver that was told looks at once, and again after each of AGAIN. So what is committed before the last of these is found,
and a client tells of a topic about fifty times a second, however much it sends: commits that notify wait for one another. Only
the end of a call shows whether it was in time, and whether the call that told has succeeded.
"""

from collections.abc import Collection, Iterable

MOMENT = 1.0  # seconds for which it is known; longer than anybody asks for


class Recent:
    def __init__(self) -> None:
        self._young: dict[str, float] = {}
        self._old: dict[str, float] = {}  # before `_since`
        self._since = 0.0

    def at(self, name: str) -> float:
        """When it was; 0 if that is longer ago."""
        return self._young.get(name) or self._old.get(name, 0.0)

    def note(self, names: Iterable[str], now: float) -> None:
        if now >= self._since + MOMENT:
            self._old, self._young, self._since = self._young, {}, now
        self._young.update(dict.fromkeys(names, now))


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
