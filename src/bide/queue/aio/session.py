# unasync: ../sync/session.py
"""What is under a queue: it opens the engine and lets go of it, and all that is sent, received and ended goes through it."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from msgspec.structs import replace

from bide.engines.aio import AsyncEngine
from bide.engines.base import End, Ended, Move, NewMessage, Ref
from bide.engines.registry import Guarded
from bide.errors import BadOption, BideError, ConfigError, Exists, Unavailable, Unsupported
from bide.queue.aio.opened import AsyncOpened, cancel_many
from bide.queue.aio.parts import may_be_stored, put_as_room_comes, put_in_parts, put_with_room
from bide.queue.aio.planner import engine_now
from bide.queue.aio.receive import AsyncReceiver
from bide.queue.aio.results import askable
from bide.queue.around import MessagesSending, SubscribersAround
from bide.queue.deliveries import DEPENDS, depends_on
from bide.queue.envelope import held, info
from bide.queue.event_loops import AsyncAffinity
from bide.queue.outbox import concerns
from bide.queue.results import expected
from bide.queue.setup import Setup, refuse, takes_all
from bide.types import CancelResult, Duration, Info, RescheduleResult, Sent


class AsyncSession:
    """It opens its engine on first use, and is closed once. Queues, tasks, workers and time travel hold one."""

    def __init__(self, setup: Setup) -> None:
        self.setup: Setup = setup
        self._most = setup.tasks.rules.most
        self._keeps = setup.tasks.keeps
        self._subscriptions = setup.subscriptions
        self._begin()

    def _begin(self) -> None:
        self._affinity = AsyncAffinity()
        self._lock = asyncio.Lock()
        self._opened: AsyncOpened | None = None
        self._opening: set[object] = set()  # who opens it now, or waits for that
        self._closed = False

    @contextmanager
    def as_new(self) -> Iterator[None]:
        """While this lasts the session is as new, and afterwards as it was before."""
        before = self._affinity, self._lock, self._opened, self._closed
        self._begin()
        try:
            yield
        finally:
            self._affinity, self._lock, self._opened, self._closed = before

    async def open(self) -> AsyncOpened:
        """What is open; opened on first use, again in a forked child, and when the event loop that used it has been closed."""
        if Guarded.in_tests is not None:
            Guarded.in_tests(self.setup.settings, self.setup.source)
        if self._affinity.moved():
            self._leave()
        opened = self._opened
        if opened is not None and not self._closed:
            return opened
        caller = self._affinity.caller()
        if caller in self._opening:
            raise Unavailable(
                "The queue is being opened by the very call that this one interrupts: a hook or a signal handler can use it "
                "once it is open. Enter the queue first, as in `with queue:`."
            )
        self._opening.add(caller)
        try:
            async with self._lock:
                if self._opened is None or self._closed:
                    return await self._open()
                return self._opened
        finally:
            self._opening.discard(caller)

    async def _open(self) -> AsyncOpened:
        if not self._closed:
            engine = self.setup.source.aio()
            await engine.open()
            opened = self._opened = AsyncOpened(engine, self.setup)  # whoever closes from now on finds it
            if not self._was_closed():
                return opened
            await self.close()
        raise Unavailable("The queue is closed: make a new one.")

    def _was_closed(self) -> bool:
        """Also while it was opened."""
        return self._closed

    def _leave(self) -> None:
        """Leave what was opened in a loop that is closed, or before a fork."""
        self._lock, self._opening = asyncio.Lock(), set()
        left, self._opened = self._opened, None
        if left is not None:
            self._affinity.leave(left.heartbeat, left.engine)
            if left.outbox is not None:
                self._affinity.leave(left.heartbeat, left.outbox.store)

    async def ready(self) -> None:
        """Open all that calls may need, so that one which joins a transaction waits for no connection meanwhile."""
        outbox = (await self.open()).outbox
        if outbox is not None:
            await outbox.store.open()

    async def engine(self) -> AsyncEngine:
        return (await self.open()).engine

    async def now(self) -> int:
        """The engine's time."""
        return await engine_now(await self.engine())

    async def receiver(self) -> AsyncReceiver:
        return (await self.open()).receiver

    async def close(self) -> None:
        """Let go of the engine; to use the session again is refused."""
        if self._opened is not None and self._affinity.moved():
            self._leave()
        self._closed = True
        opened = self._opened
        if opened is not None:
            await opened.close()
            self._opened = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def put(self, new: NewMessage, connection: object | None = None, *, told: bool = False) -> Sent:
        """Send a message. Raises Exists if it says so and another one has its key, QueueFull if its topic is full.

        `told`: subscribers are, around this.
        """
        if self._subscriptions.sends and not told:
            event = MessagesSending([new], self.setup.now_ms)
            with SubscribersAround(self._subscriptions, event):
                sent = await self.put(new, connection, told=True)
                event.sent = [sent]
                return sent
        opened = await self.open()
        if opened.takes_less:
            refuse(self.setup, [new])
        if new.headers and DEPENDS in new.headers:
            return await self._put_dependent(opened, new, connection)
        if self._most and new.topic in self._most:
            return await self._put_with_room(opened, new, connection)
        if connection is not None or self._keeps:
            return await self._put_now(opened, new, connection)
        sent = await opened.puts.add(new)  # as most are sent
        if sent.outcome == "exists":
            raise Exists(held(new, sent), sent)
        return sent

    async def _put_now(self, opened: AsyncOpened, new: NewMessage, connection: object | None) -> Sent:
        if connection is None:
            sent = await opened.puts.add(new)
        else:
            [sent] = await (opened.outbox or opened.engine).put([new], connection=connection)
        if self._keeps:
            [sent] = await self._noted(opened, [sent], connection)
        if sent.outcome == "exists":
            raise Exists(held(new, sent), sent)
        return sent

    async def _put_with_room(self, opened: AsyncOpened, new: NewMessage, connection: object | None) -> Sent:
        await opened.rooms.take(new.topic, 1)
        stored = True  # or may be
        try:
            sent = await self._put_now(opened, new, connection)
            stored = sent.created
        except BideError as error:
            stored = may_be_stored(error)
            raise
        finally:
            opened.rooms.done(new.topic, 1, stored)
        return sent

    async def _put_dependent(self, opened: AsyncOpened, new: NewMessage, connection: object | None) -> Sent:
        """Send a message that waits for others: first it is to be delivered at its deadline, then it waits to be called sooner.

        In the caller's transaction nobody can be done in between, so what is done already is not waited for.
        """
        if connection is not None and opened.outbox is not None:
            raise Unsupported("A message in an outbox can't wait for others: leave depends_on= or connection= out.")
        put = self._put_with_room if new.topic in self._most else self._put_now
        on, dependents = depends_on(new.headers), opened.dependents
        if connection is not None:
            left = await dependents.left(on, connection)
            sent = await put(opened, new if left else replace(new, delay=0), connection)
            if left and sent.created:
                await dependents.join(sent, left, connection)
            return sent
        await dependents.check(on)
        sent = await put(opened, new, None)
        if sent.created:
            await dependents.wait(sent, on)
        return sent

    def later(self, new: NewMessage) -> None:
        """Send a message in the background. Raises QueueFull when too many wait for that."""
        if self._closed:
            raise Unavailable("The queue is closed: make a new one.")
        if not takes_all(self.setup.source.capabilities):
            refuse(self.setup, [new])
        if DEPENDS in new.headers:
            raise BadOption("A send in the background can't wait for others: leave depends_on= out, or use send().")
        if self._subscriptions.sends:
            with SubscribersAround(self._subscriptions, MessagesSending([new], self.setup.now_ms)):
                self.setup.later.put(new)
        else:
            self.setup.later.put(new)

    async def put_many(
        self, new: Sequence[NewMessage], connection: object | None = None, *, wait: float | None = None, told: bool = False
    ) -> list[Sent]:
        """Send messages of one topic in parts of 1,000. Raises PartlySent when a later part fails.

        If their topic may be full: all or none, or with `wait` in parts that there is room for. `told` as in `put`.
        """
        if new and self._subscriptions.sends and not told:
            event = MessagesSending(new, self.setup.now_ms)
            with SubscribersAround(self._subscriptions, event):
                event.sent = every = await self.put_many(new, connection, wait=wait, told=True)
                return every
        opened = await self.open()
        if opened.takes_less:
            refuse(self.setup, new)

        async def put(part: Sequence[NewMessage]) -> list[Sent]:
            store = opened.engine if connection is None else opened.outbox or opened.engine
            sent = await store.put(part, connection=connection)
            return sent if not self._keeps else await self._noted(opened, sent, connection)

        if not new or new[0].topic not in self._most:
            return await put_in_parts(put, new)
        if wait is None:
            return await put_with_room(put, new, opened.rooms)
        return await put_as_room_comes(put, new, opened.rooms, wait)

    async def _noted(self, opened: AsyncOpened, sent: Sequence[Sent], connection: object | None) -> list[Sent]:
        """What was sent, remembered of tasks that keep results. An outbox remembers what went there."""
        if connection is None or opened.outbox is None:
            await opened.keeping.expect(expected(sent, self._keeps), connection)
        return askable(sent, self._keeps, self.result)

    async def result(self, id: str, timeout: Duration | None) -> Any:
        """What the task of a message returned, once it is done. Raises NoResult."""
        return await (await self.open()).result(id, timeout)

    async def settle(self, ends: Sequence[End], connection: object | None = None) -> list[Ended]:
        """End deliveries."""
        return await (await self.engine()).settle(ends, connection=connection)

    async def relay(self, *, wait: bool) -> int:
        """Hand on what was sent into the outbox, until the queue is closed, or what there is. How many messages that were."""
        outbox = (await self.open()).outbox
        if outbox is None:
            raise ConfigError("This queue has no outbox: make it with outbox= and the URL of your application's database.")
        relay = outbox.relay()
        return await (relay.run() if wait else relay.hand_on_all())

    async def cancel(self, which: Ref, connection: object | None = None) -> CancelResult:
        opened = await self.open()
        if connection is not None or (opened.outbox is not None and concerns(which)):
            [result] = await cancel_many(opened, [which], connection)
            return result
        result = await opened.cancels.add(which)  # as most are cancelled
        if result is CancelResult.RUNNING and await opened.receiver.take_back():
            return await self.cancel(which)
        return result

    async def cancel_many(self, refs: Sequence[Ref], connection: object | None) -> list[CancelResult]:
        """By their ids."""
        return await cancel_many(await self.open(), refs, connection)

    async def reschedule(self, move: Move, connection: object | None = None) -> RescheduleResult:
        opened = await self.open()
        if opened.outbox is not None and concerns(move.ref):
            result = await opened.outbox.waiting.reschedule(move, connection)
        elif connection is not None:
            [result] = await opened.engine.reschedule([move], connection=connection)
        else:
            result = await opened.moves.add(move)
        if result is RescheduleResult.RUNNING and connection is None and await opened.receiver.take_back():
            return await self.reschedule(move)
        return result

    async def get(self, which: Ref) -> Info | None:
        opened = await self.open()
        if opened.outbox is not None and concerns(which):
            stored = await opened.outbox.waiting.get(which, self.setup.now_ms())
        else:
            [stored] = await opened.engine.get([which])
        return None if stored is None else info(stored, self.setup.envelope)
