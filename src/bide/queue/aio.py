# unasync: sync.py
"""The verbs of a queue, as users call them: arguments are checked, engines are asked, answers are unwrapped."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from bide.clock import Clock, moment
from bide.core import options
from bide.core.codec import JSON, MAX_BODY, Codec
from bide.core.when import duration_ms, instant_ms, lease_ms
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Capabilities, End, Ended, Move, NewMessage, Ref, Window
from bide.errors import BadMessage, BadTime, EngineError, Exists, PartlySent, Unavailable
from bide.queue.deliveries.aio import AsyncDelivery
from bide.queue.gather import AsyncGather
from bide.queue.heartbeat import Heartbeat
from bide.queue.home import AsyncHome
from bide.queue.hooks import Hook, Watch, hooks_for
from bide.queue.intake.aio import AsyncIntake, give_back, listen
from bide.queue.observed.aio import AsyncObserved
from bide.queue.outgoing import info, move, ref
from bide.queue.setup import Setup
from bide.types import (
    CancelResult,
    Duration,
    IfExists,
    Info,
    Outgoing,
    Page,
    Priority,
    RescheduleResult,
    Sent,
    Span,
    State,
    Stats,
)


class AsyncVerbs:
    """What AsyncQueue can do."""

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "bide",
        client: object | None = None,
        clock: Clock | None = None,
        dead_for: Duration = "30d",
        dead_max: int = 100_000,
        codec: Codec = JSON,
        max_body: int = MAX_BODY,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self._begin(
            Setup(
                url,
                namespace=namespace,
                client=client,
                clock=clock,
                dead_for=dead_for,
                dead_max=dead_max,
                codec=codec,
                max_body=max_body,
                hooks=hooks,
            )
        )

    def _begin(self, setup: Setup) -> None:
        self._setup = setup
        self._home = AsyncHome()
        self._lock = asyncio.Lock()
        self._ready: AsyncEngine | None = None
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """What the engine behind this queue can do."""
        return self._setup.source.capabilities

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._setup.source.shown}>"

    async def _engine(self) -> AsyncEngine:
        """The engine, opened on first use, and again in a forked child."""
        if self._home.moved():
            self._lock = asyncio.Lock()
            self._ready = None
        ready = self._ready
        if ready is not None:
            return ready
        async with self._lock:
            if self._closed:
                raise Unavailable("The queue is closed: make a new one.")
            if self._ready is None:
                self._ready = await self._open()
            return self._ready

    async def _open(self) -> AsyncEngine:
        engine: AsyncEngine = self._setup.source.aio()
        hooks = hooks_for(self._setup.hooks)
        if hooks:
            engine = AsyncObserved(engine, Watch(hooks, self._setup.source.shown))
        await engine.open()
        self._puts: AsyncGather[NewMessage, Sent] = AsyncGather(engine.put)
        self._settles: AsyncGather[End, Ended] = AsyncGather(engine.settle)
        self._cancels: AsyncGather[Ref, CancelResult] = AsyncGather(engine.cancel)
        self._moves: AsyncGather[Move, RescheduleResult] = AsyncGather(engine.reschedule)
        self._heartbeat = Heartbeat(self._setup.source)
        self._intake = AsyncIntake(engine, self._setup.envelope, self._settles, self._heartbeat)
        return engine

    # sending

    async def send(
        self,
        topic: str,
        body: object = None,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        if_exists: IfExists = "keep",
        priority: Priority = "normal",
        expires_in: Duration | None = None,
        max_attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
        operation: str | None = None,
        connection: object | None = None,
    ) -> Sent:
        """Have a message delivered at a time: now, after a `delay`, or `at` an aware datetime.

        key: your name for it while it has not ended; `if_exists` says what happens when one has it already.
        expires_in: so long after its due time it is dropped if nobody took it. max_attempts: 3 unless you say so.
        operation: sending again with the same one within 10 minutes gives the first answer; OutcomeUnknown carries
        the one to use. connection: joins the caller's transaction, where the engine can.

        Raises BadMessage for what can't be sent, Exists with if_exists="error", EngineError when the engine fails.
        """
        new = self._setup.envelope.message(
            topic,
            body,
            self._setup.now_ms(),
            delay=delay,
            at=at,
            key=key,
            if_exists=if_exists,
            priority=priority,
            expires_in=expires_in,
            max_attempts=max_attempts,
            headers=headers,
            operation=operation,
        )
        engine = await self._engine()
        if connection is None:
            sent = await self._puts.add(new)
        else:
            [sent] = await engine.put([new], connection=connection)
        if sent.outcome == "exists":
            raise Exists(f"Message {sent.id} of {topic} has the key {key!r} and has not ended.", sent)
        return sent

    async def send_many(self, topic: str, items: Iterable[Outgoing | object], *, operation: str | None = None) -> list[Sent]:
        """Send bodies, or Outgoing(…) with options of their own; each is answered for itself, in order.

        All are checked before the first is sent. They go in parts of 1,000, each whole or not at all; when a later
        part fails, PartlySent has what was accepted, and sending all again with the same `operation` repeats nothing.
        """
        new = self._setup.envelope.messages(topic, items, self._setup.now_ms(), operation)
        engine = await self._engine()
        sent: list[Sent] = []
        for first in range(0, len(new), MAX_BATCH):
            try:
                sent += await engine.put(new[first : first + MAX_BATCH])
            except (EngineError, BadMessage) as error:
                if not sent:
                    raise
                raise PartlySent(f"{len(sent):,} of {len(new):,} messages were accepted, then: {error}", sent, error) from error
        return sent

    async def cancel(
        self, message: str | Sent | None = None, *, topic: str | None = None, key: str | None = None
    ) -> CancelResult:
        """End a message that is pending, by its id or by topic and key. CANCELLED: it will never be delivered."""
        which = ref(message, topic, key)
        await self._engine()
        return await self._cancels.add(which)

    async def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> RescheduleResult:
        """Give a pending message a new time. MOVED: it is due then, and only then."""
        new = move(ref(message, topic, key), delay, at, self._setup.now_ms())
        await self._engine()
        return await self._moves.add(new)

    # receiving

    async def receive(self, *topics: str, limit: int = 1, wait: Duration = 0, lease: Duration = "30s") -> list[AsyncDelivery]:
        """Take up to `limit` messages that are due; with `wait`, sleep up to so long for the first.

        You hold them for `lease`, and nobody renews it: end each before that, or extend() it.
        """
        names = options.topics(topics)
        most, held, patience = options.count(limit, "limit", MAX_BATCH), lease_ms(lease), duration_ms(wait, "wait")
        intake = await self._taking()
        return await intake.take(names, most, held, patience / 1000)

    def listen(self, *topics: str, limit: int = 10, lease: Duration = "15s") -> AsyncGenerator[AsyncDelivery, None]:
        """Messages as they fall due, for ever: `async for d in queue.listen("t"): async with d: …`

        At most `limit` are held at once. A lease is renewed, by a thread, until its delivery ends or is dropped.
        """
        names = options.topics(topics)
        return listen(self._taking, names, options.count(limit, "limit", MAX_BATCH), lease_ms(lease))

    async def _taking(self) -> AsyncIntake:
        await self._engine()
        return self._intake

    async def ack_many(self, deliveries: Iterable[AsyncDelivery]) -> list[bool]:
        """Ack a batch in one call. False for a delivery that had ended or whose lease was lost: nothing changed there."""
        each = list(deliveries)
        engine = await self._engine()
        acked: list[bool] = []
        for first in range(0, len(each), MAX_BATCH):
            part = each[first : first + MAX_BATCH]
            answers = await engine.settle([delivery.end("done") for delivery in part])
            for delivery in part:
                delivery.mark_ended()
            acked += [answer != "lost" for answer in answers]
        return acked

    # looking and looking after

    async def get(self, message: str | Sent | None = None, *, topic: str | None = None, key: str | None = None) -> Info | None:
        """What is stored about a message; None when it has ended."""
        which = ref(message, topic, key)
        [stored] = await (await self._engine()).get([which])
        return None if stored is None else info(stored, self._setup.envelope)

    async def topics(self) -> list[str]:
        """The topics that hold a message, are paused, or have dropped dead letters."""
        return sorted((await (await self._engine()).stats()).topics)

    async def messages(self, topic: str, *, state: State | None = None, limit: int = 100, after: str | None = None) -> Page:
        """A page of a topic: pending ones by due time, then leased, then dead. Go on with the page's own `after`."""
        name, which = options.topic(topic), None if state is None else options.state(state)
        most = options.count(limit, "limit", MAX_BATCH)
        mark = None if after is None else options.text(after, "after", 256)
        scanned = await (await self._engine()).scan(name, which, most, mark)
        return Page([info(stored, self._setup.envelope) for stored in scanned.messages], scanned.after)

    async def stats(self, topic: str | None = None) -> Stats:
        """Counts by state, how late the oldest is, and when the next is due: of a topic, or of all and each."""
        name = None if topic is None else options.topic(topic)
        return await (await self._engine()).stats(name)

    async def timeline(
        self,
        topic: str | None = None,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        buckets: int = 60,
    ) -> list[Span]:
        """How many messages fall due when; from now for an hour unless you say otherwise."""
        name = None if topic is None else options.topic(topic)
        begin = self._setup.now_ms() if start is None else instant_ms(start, "start")
        until = begin + 3_600_000 if end is None else instant_ms(end, "end")
        parts = options.count(buckets, "buckets", 10_000)
        if until - begin < parts:
            raise BadTime("end is not after start, or so close that a bucket would be under a millisecond.")
        stats = await (await self._engine()).stats(name, window=Window(begin, until, parts))
        step = timedelta(milliseconds=until - begin) / parts
        first = moment(begin)
        return [Span(first + place * step, first + (place + 1) * step, count) for place, count in enumerate(stats.timeline)]

    async def requeue(self, topic: str, ids: Iterable[str] | None = None, *, delay: Duration = 0) -> int:
        """Give dead letters a new life with all their attempts: those named, or all that are dead now. How many."""
        name, wait = options.topic(topic), duration_ms(delay)
        engine = await self._engine()
        if ids is not None:
            named = [options.text(each, "id", 128) for each in ids]
            parts = [named[first : first + MAX_BATCH] for first in range(0, len(named), MAX_BATCH)]
            return sum([(await engine.requeue(name, part, delay=wait)).count for part in parts])
        done, total = 0, (await engine.stats(name)).dead
        while done < total:
            page = await engine.requeue(name, delay=wait, limit=min(MAX_BATCH, total - done))
            done += page.count
            if not page.more:
                break
        return done

    async def purge(self, topic: str, *, state: State) -> int:
        """Drop the messages of a topic that are in this state now; leased ones can't be. How many."""
        name, which = options.topic(topic), options.state(state)
        engine = await self._engine()
        stats = await engine.stats(name)
        done, total = 0, getattr(stats, which)
        while True:
            page = await engine.purge(name, which, limit=max(1, min(MAX_BATCH, total - done)))
            done += page.count
            if not page.more or done >= total:
                return done

    async def pause(self, topic: str) -> None:
        """Hand out none of a topic's messages until it is resumed; what is being worked on goes on."""
        name = options.topic(topic)
        await (await self._engine()).pause(name, True)

    async def resume(self, topic: str) -> None:
        """Hand out a topic's messages again."""
        name = options.topic(topic)
        await (await self._engine()).pause(name, False)

    # ending

    async def close(self) -> None:
        """Let go of the engine. What was being sent is seen through first; using the queue again is refused."""
        if self._closed or self._ready is None:
            self._closed = True
            return
        engine = await self._engine()
        self._closed = True
        for fresh in list(self._intake.fresh):
            await give_back(fresh)
        for gather in (self._puts, self._settles, self._cancels, self._moves):
            await gather.close()
        self._heartbeat.close()
        await engine.close()

    async def __aenter__(self) -> Self:
        await self._engine()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
