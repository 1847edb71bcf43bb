"""How a task is called while time travels, in each colour: sync ones in a thread of an event loop, async ones in a loop."""

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from bide.errors import ConfigError
from bide.queue.deliveries.aio import AsyncDelivery
from bide.queue.deliveries.sync import Delivery
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.present import present

if TYPE_CHECKING:
    from bide.queue.twins import AsyncQueue, Queue


class AsyncCalling:
    def __init__(self, queue: "AsyncQueue") -> None:
        self._queue = queue
        self._used_twin = False

    async def call(self, task: Definition, arguments: dict[str, Any], delivery: AsyncDelivery) -> BaseException | None:
        """What it raised."""
        if task.is_async:
            return await asyncio.get_running_loop().create_task(_awaited(task, arguments, delivery))
        self._used_twin = True
        seen = self._queue.sync._delivery(delivery)
        try:
            return await asyncio.to_thread(_called, task, arguments, seen)
        finally:
            delivery.ended = seen.ended

    async def check(self, task: Definition) -> None:
        """Refuse what can't be called from here."""

    def close(self) -> None:
        """What was opened for sync tasks."""
        if self._used_twin:
            self._used_twin = False
            self._queue.sync.close()


class Calling:
    def __init__(self, queue: "Queue") -> None:
        self._queue = queue
        self._runner: asyncio.Runner | None = None

    def call(self, task: Definition, arguments: dict[str, Any], delivery: Delivery) -> BaseException | None:
        """What it raised."""
        if not task.is_async:
            return contextvars.copy_context().run(_called, task, arguments, delivery)
        if self._runner is None:
            self._runner = asyncio.Runner()  # one for all: what handlers open belongs to its loop
        return self._runner.run(self._in_loop(task, arguments, delivery), context=contextvars.copy_context())

    async def _in_loop(self, task: Definition, arguments: dict[str, Any], delivery: Delivery) -> BaseException | None:
        seen = await self._queue.aio._delivery(delivery)
        try:
            return await _awaited(task, arguments, seen)
        finally:
            delivery.ended = seen.ended

    def check(self, task: Definition) -> None:
        """Refuse what can't be called from here."""
        if task.is_async and asyncio._get_running_loop() is not None:
            raise ConfigError(
                f"{task.name}() is async, and advance() of a sync queue can't run it inside an event loop. "
                "Await the twin's: `await queue.aio.testing.advance(…)`."
            )

    def close(self) -> None:
        """What was opened for async tasks."""
        if self._runner is not None:
            self._runner.run(self._queue.aio.close())
            self._runner.close()
            self._runner = None


async def _awaited(task: Definition, arguments: dict[str, Any], delivery: AsyncDelivery) -> BaseException | None:
    present.set(lambda: delivery)
    try:
        await task.function(**arguments)
    except (Exception, SystemExit) as error:
        return error
    except asyncio.CancelledError as error:
        runner = asyncio.current_task()
        if runner is not None and runner.cancelling():
            raise  # not the handler's own doing
        return error
    return None


def _called(task: Definition, arguments: dict[str, Any], delivery: Delivery) -> BaseException | None:
    """Handed back, not raised: a StopIteration could not leave the thread, and a SystemExit would end the loop."""
    present.set(lambda: delivery)
    try:
        task.call(arguments)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        return error
    return None
