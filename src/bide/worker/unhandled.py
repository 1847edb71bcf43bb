"""Looks for messages that no handler here is for. They stay where they are; somebody should know."""

import asyncio

from bide.engines.aio import AsyncEngine
from bide.errors import BideError
from bide.logs import Log
from bide.queue.tasks.definition import Tasks

_log = Log("bide.worker")
EVERY = 60.0  # seconds


class Unhandled:
    def __init__(self, engine: AsyncEngine, tasks: Tasks) -> None:
        self._engine = engine
        self._tasks = tasks
        self._told: set[str] = set()
        self.count: int = 0

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except BideError as error:
                _log.debug("Could not look for messages without a handler: %s", error)
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Count what is due and has no handler, and say it once for each topic."""
        stats = await self._engine.stats()
        waiting = {topic: each.ready for topic, each in stats.topics.items() if each.ready and self._tasks.get(topic) is None}
        self.count = sum(waiting.values())
        for topic, ready in waiting.items():
            if topic not in self._told:
                _log.warning(
                    "%d messages of %s are due and no task here is for them: they stay. Another worker may have it; if not, "
                    "import the module that defines it, or add the topic to a task's aliases.",
                    ready,
                    topic,
                )
        self._told = set(waiting)
