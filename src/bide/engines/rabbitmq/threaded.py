"""The engine for threads: the async one in an event loop, in a thread that begins with the first call that needs the broker."""

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from bide.engines.base import (
    MAX_BATCH,
    Capabilities,
    Claim,
    Condition,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Ref,
    Scanned,
    Seen,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.engines.rabbitmq.aio.engine import AsyncRabbit
from bide.engines.rabbitmq.aio.line import CLOSED
from bide.engines.sync import Engine
from bide.errors import Unavailable
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats

T = TypeVar("T")
PATIENCE = 0.5  # seconds for calls that are under way when the engine is closed


class ThreadedRabbit(Engine):
    def __init__(self, make: Callable[[], AsyncRabbit]) -> None:
        self._make = make
        self._engine = make()
        self.capabilities: Capabilities = self._engine.capabilities
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def open(self) -> None:
        """The broker is asked by the first call that needs it: one that only renews leases never does."""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
            if self._process != os.getpid():
                loop = None
        if loop is not None and thread is not None:
            try:
                asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            finally:
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                loop.close()

    async def _end(self) -> None:
        """Close the engine, and see what is under way to its end: other threads wait for it."""
        try:
            await self._engine.close()
        finally:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            _, left = await asyncio.wait(others, timeout=PATIENCE) if others else ((), ())
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        return self._run(lambda: self._engine.put(messages, connection=connection, now=now))

    def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        if not topics:
            return self._engine.held(request, now)
        return self._run(lambda: self._engine.claim(topics, limit, lease, request=request, now=now))

    def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        return self._run(lambda: self._engine.settle(ends, connection=connection, now=now))

    def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        return self._engine.renew(holds, lease, now)

    def cancel(
        self,
        refs: Sequence[Ref],
        *,
        seen: Sequence[Seen] | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[CancelResult]:
        return self._run(lambda: self._engine.cancel(refs, seen=seen, connection=connection, now=now))

    def reschedule(
        self,
        moves: Sequence[Move],
        *,
        condition: Condition | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[RescheduleResult]:
        return self._run(lambda: self._engine.reschedule(moves, condition=condition, connection=connection, now=now))

    def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        return self._run(lambda: self._engine.tend(budget, ended_by=ended_by, now=now))

    def wait(self, topics: Sequence[str], timeout: float) -> None:
        self._run(lambda: self._engine.wait(topics, timeout))

    def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        return self._run(lambda: self._engine.get(refs, brief=brief, now=now))

    def scan(self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None) -> Scanned:
        return self._run(lambda: self._engine.scan(topic, state, limit, after, now=now))

    def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        return self._run(lambda: self._engine.stats(topic, but=but, window=window, now=now))

    def requeue(
        self,
        topic: str,
        ids: Sequence[str] | None = None,
        *,
        delay: int = 0,
        over: int = 0,
        limit: int = MAX_BATCH,
        now: int | None = None,
    ) -> Swept:
        return self._run(lambda: self._engine.requeue(topic, ids, delay=delay, over=over, limit=limit, now=now))

    def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        return self._run(lambda: self._engine.purge(topic, state, ids, limit=limit, now=now))

    def pause(self, topic: str, paused: bool) -> None:
        self._run(lambda: self._engine.pause(topic, paused))

    def _run(self, verb: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def opened() -> T:
            await self._engine.open()
            return await verb()

        with self._lock:  # so that it is there when the engine is closed
            asked = asyncio.run_coroutine_threadsafe(opened(), self._started())
        try:
            return asked.result()
        except CancelledError:
            raise Unavailable(CLOSED) from None

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise Unavailable(CLOSED)
        if self._process != os.getpid():  # a fork has neither the thread nor a connection of its own
            self._process, self._engine, self._loop = os.getpid(), self._make(), None
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="bide-rabbitmq", daemon=True)
            self._thread.start()
        return self._loop
