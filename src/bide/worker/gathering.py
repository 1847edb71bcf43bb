"""Gathers the messages of tasks with `batch=`, until a batch is full or its first message has waited for its linger."""

import asyncio
from collections.abc import Callable, Sequence

from bide.worker.handling import Handling


class _Open:
    """A batch that others may join."""

    def __init__(self, ending: asyncio.Handle) -> None:
        self.ending: asyncio.Handle = ending
        self.members: list[Handling] = []


class Gathering:
    """Their leases are renewed meanwhile, as those of messages that run."""

    def __init__(self, begin: Callable[[Sequence[Handling]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin = begin
        self._open: dict[str, _Open] = {}  # by topic

    def put(self, handling: Handling) -> None:
        batch, topic = handling.task.batch, handling.delivery.claimed.topic
        assert batch is not None
        gathered = self._open.get(topic)
        if gathered is None:
            ending = (
                self._loop.call_later(batch.linger, self._go, topic) if batch.linger else self._loop.call_soon(self._go, topic)
            )
            gathered = self._open[topic] = _Open(ending)
        gathered.members.append(handling)
        if len(gathered.members) >= batch.size:
            self._go(topic)

    def take_back(self) -> list[Handling]:
        """What is gathered and will not be handled."""
        gathered = list(self._open.values())
        self._open.clear()
        for each in gathered:
            each.ending.cancel()
        return [handling for each in gathered for handling in each.members]

    def _go(self, topic: str) -> None:
        gathered = self._open.pop(topic)
        gathered.ending.cancel()
        self._begin(gathered.members)
