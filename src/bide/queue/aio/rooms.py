# unasync: ../sync/rooms.py
"""Topics that may hold so many pending messages, and how many more this sender may send to them."""

import time
from collections.abc import Mapping

from bide.core.formats import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import Window
from bide.errors import QueueFull
from bide.queue.room import Room
from bide.wakeable import AsyncSignal

_EVER = Window(0, 2**45, 1)
FIRST_LOOK, LAST_LOOK = 0.05, 1.0  # seconds between two looks of who waits for room


class AsyncRooms:
    def __init__(self, engine: AsyncEngine, most: Mapping[str, int]) -> None:
        """`most`: how many messages may be pending, by topic."""
        self._engine = engine
        self._most = most
        self._rooms: dict[str, Room] = {}

    async def take(self, topic: str, count: int) -> None:
        """Room for so many messages. Raises QueueFull."""
        if not await self._take(topic, count, count):
            raise self._full(topic, count)

    async def wait(self, topic: str, count: int, seconds: float) -> int:
        """Room for some of so many messages, waited for. Raises QueueFull when there is none in that time."""
        until, pause = time.monotonic() + seconds, FIRST_LOOK
        while not (taken := await self._take(topic, 1, count)):
            left = until - time.monotonic()
            if left <= 0:
                raise self._full(topic, count)
            await AsyncSignal().wait(min(pause, left))
            pause = min(2 * pause, LAST_LOOK)
        return taken

    def done(self, topic: str, taken: int, stored: int) -> None:
        """Of the messages that there was room for, so many were stored, or may have been."""
        self._rooms[topic].done(taken, stored)

    async def _take(self, topic: str, least: int, count: int) -> int:
        room, most = self._rooms.setdefault(topic, Room()), self._most.get(topic, 2**62)
        if room.is_stale():
            began, begun = time.monotonic(), room.begin()
            pending = await self._count(topic)
            room.counted(pending, begun, time.monotonic() - began, most)
        return room.take(least, count, most)

    async def _count(self, topic: str) -> int:
        """All that is pending. Where an engine estimates, its timeline is exact."""
        stats = await self._engine.stats(topic)
        if stats.about:
            stats = await self._engine.stats(topic, window=_EVER)
            return sum(stats.timeline)
        return stats.pending

    def _full(self, topic: str, count: int) -> QueueFull:
        pending, most = self._rooms[topic].pending, self._most.get(topic, 0)
        many = "" if count == 1 else f", and these are {count:,} more"
        return QueueFull(
            f"{topic} holds {plural(pending, 'pending message')}{many}: its most_pending is {most:,}. Send less, start more "
            "workers, or have send_many wait for room with wait=."
        )
