"""A subscriber of events that keeps what it is told, and the story of each message that this makes."""

from collections import defaultdict
from typing import Any

from bide import CallFailed, EngineCalled, MessagesBegun, MessagesEnded, MessagesSent


class Told:
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.failures: list[CallFailed] = []
        self.calls: list[EngineCalled] = []
        self._stories: dict[str, list[Any]] = defaultdict(list)

    def sent(self, event: MessagesSent) -> None:
        self._note(event, event.outcome)

    def begun(self, event: MessagesBegun) -> None:
        assert all(each >= 0 for each in event.lateness)
        self._note(event, "begun")

    def ended(self, event: MessagesEnded) -> None:
        assert len(event.lateness) == len(event.seconds) <= event.count
        self._note(event, event.outcome)

    def failed(self, event: CallFailed) -> None:
        self.failures.append(event)

    def called(self, event: EngineCalled) -> None:
        self.calls.append(event)

    def _note(self, event: Any, what: str) -> None:
        self.events.append(event)
        parts = event.messages
        assert len(parts) == event.count > 0
        for each in parts:
            self._stories[each.id].append((event.topic, what, each.key, each.attempt, each.error))

    def of(self, id: str) -> list[str]:
        """What has happened to a message, in order."""
        return [what for _, what, *_ in self._stories[id]]

    @property
    def stories(self) -> list[list[Any]]:
        """Of each message, without its id. However often it has come and was released again, it has done so once here."""
        return sorted((_once(each) for each in self._stories.values()), key=repr)


def _once(story: list[Any]) -> list[Any]:
    shorter: list[Any] = []
    for each in story:
        shorter.append(each)
        if shorter[-4:-2] == shorter[-2:] and each[1] == "released":
            del shorter[-2:]
    return shorter
