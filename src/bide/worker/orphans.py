"""Looks for messages that no handler here is for. They stay where they are; somebody should know."""

import asyncio
from collections.abc import Callable

from bide.engines.aio import AsyncEngine
from bide.errors import BideError
from bide.logs import Log
from bide.queue.schedules.records import OWN
from bide.queue.tasks.registry import Tasks

_log = Log("bide.worker")
EVERY = 60.0  # seconds


class Orphans:
    def __init__(self, engine: AsyncEngine, tasks: Tasks, late: Callable[[str], bool]) -> None:
        self._engine = engine
        self._tasks = tasks
        self._late = late  # whether the task for a topic was defined when the worker had begun
        self._told: set[str] = set()
        self.count: int = 0

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except BideError as error:
                _log.debug("Could not look for messages without a handler: %s", error)
            except Exception:  # of an engine that somebody has plugged in: the next look may do
                _log.exception("The engine broke down over a look for messages without a handler")
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Count what is due and has no handler, and say it once for each topic."""
        served = [topic for topic in self._tasks if not self._late(topic)]
        stats = await self._engine.stats(but=[*served, *OWN])
        waiting = {topic: each.ready for topic, each in stats.topics.items() if each.ready}
        self.count = sum(waiting.values())
        for topic, ready in waiting.items():
            if topic not in self._told and self._tasks.get(topic) is not None:
                _log.warning(
                    "%s, and its task was defined when this worker had begun, which does not serve it: messages stay. "
                    "Import the module that defines it before the worker begins.",
                    _due(topic, ready),
                )
            elif topic not in self._told:
                _log.warning(
                    "%s and no task here is for them: they stay. Another worker may have it; if not, "
                    "import the module that defines it, or add the topic to a task's aliases.",
                    _due(topic, ready),
                )
        self._told = set(waiting)


def _due(topic: str, ready: int) -> str:
    return f"1 message of {topic} is due" if ready == 1 else f"{ready:,} messages of {topic} are due"
