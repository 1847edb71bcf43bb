"""What programs do with a queue on several parts: each thing again and again, on each part, written into a book."""

import functools
import itertools
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from bide import EngineError, Outgoing
from bide.engines.redis.protocol.encoding import name_of
from bide.types import Sent
from tests.redis.hands import PACE, PARTS, Here

Deed: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
LEASE = "8s"  # so that one that is not renewed is over soon
WAIT = 0.3  # seconds that a receiver waits
SINK, HEARD, CHANGED = "sink", "heard", "changed"

ON_EACH = ["send with a key", "send_many with keys", "get", "reschedule", "cancel", "lock", "unlock", "ack", "delivery"]
ANYWHERE = ["send", "send_many", "receive", "stats", "topics", "messages"]


class Users:
    """All things that one process does by one queue."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._queue = here.hand.queue

    def deeds(self) -> list[Deed]:
        on_each = [self._send, self._send_many, self._change, self._lock]
        alone = [self._send_keyless, self._receive, self._listen, self._look]
        return [*(functools.partial(deed, part) for deed in on_each for part in PARTS), *alone]

    def expected(self) -> list[tuple[str, frozenset[int]]]:
        """What goes on while all is well."""
        parted = [(self._here.named(what), frozenset([part])) for what in ON_EACH for part in PARTS]
        return [*parted, *((self._here.named(what), frozenset[int]()) for what in ANYWHERE)]

    async def _send(self, part: int) -> None:
        names, turns = self._here.names, itertools.cycle([(SINK, 0), (HEARD, 0.5), (HEARD, 0), (SINK, 0.5)])
        while not self._here.quiet.is_set():
            topic, delay = next(turns)
            send = functools.partial(self._queue.send, topic, 1, key=names.key(topic, part), delay=delay)
            self._accept(await self._here.do("send with a key", [part], send))
            await self._here.hand.pause()

    async def _send_keyless(self) -> None:
        for number in itertools.count():
            if self._here.quiet.is_set():
                return
            send = functools.partial(self._queue.send, SINK, self._here.named(f"message {number}"))
            self._accept(await self._here.do("send", [], send))
            self._accept(*(await self._here.do("send_many", [], lambda: self._queue.send_many(HEARD, [1, 2, 3])) or ()))
            await self._here.hand.pause()

    async def _send_many(self, part: int) -> None:
        while not self._here.quiet.is_set():
            items = [Outgoing(1, key=self._here.names.key(HEARD, part)) for _ in range(3)]
            send = functools.partial(self._queue.send_many, HEARD, items)
            self._accept(*(await self._here.do("send_many with keys", [part], send) or ()))
            await self._here.hand.pause(2 * PACE)

    def _accept(self, *sent: Sent | None) -> None:
        for each in sent:
            if each is not None:
                self._here.ledger.accepted(each)

    async def _change(self, part: int) -> None:
        """Always one message: by its key, and by its id if that is known."""
        do, partial, queue = self._here.do, functools.partial, self._queue
        for turn in itertools.count():
            if self._here.quiet.is_set():
                return
            key = self._here.names.key(CHANGED, part)
            sent = await do("send with a key", [part], partial(queue.send, CHANGED, key=key, delay="1h"))
            refs: list[dict[str, Any]] = [{"topic": CHANGED, "key": key}]
            refs += [] if sent is None else [{"message": sent}]
            for ref in refs:
                await do("get", [part], partial(queue.get, **ref))
                await do("reschedule", [part], partial(queue.reschedule, **ref, delay="2h"))
            await do("cancel", [part], partial(queue.cancel, **refs[turn % len(refs)]))
            await self._here.hand.pause(2 * PACE)

    async def _lock(self, part: int) -> None:
        name = self._here.names.value(part)
        while not self._here.quiet.is_set():
            lock = self._queue.lock(name, ttl=LEASE)
            if await self._here.do("lock", [part], functools.partial(self._here.hand.enter, lock)) is not None:
                await self._here.do("unlock", [part], functools.partial(self._here.hand.leave, lock))
            await self._here.hand.pause(2 * PACE)

    async def _receive(self) -> None:
        while not self._here.over.is_set():
            receive = functools.partial(self._queue.receive, SINK, limit=20, wait=WAIT, lease="30s")
            for delivery in await self._here.do("receive", [], receive) or ():
                self._take(delivery)

    async def _listen(self) -> None:
        async for delivery in heard(self._here, HEARD):
            self._take(delivery)

    def _take(self, delivery: Any) -> None:
        part = name_of(delivery.id).shard
        self._here.ledger.handed_out(delivery.id, delivery.due, delivery.body)
        late = max(0.0, time.time() - delivery.due / 1000)
        self._here.book.note(self._here.named("delivery"), [part], time.monotonic() - late)
        self._here.hand.beside(part, self._here.do("ack", [part], delivery.ack))

    async def _look(self) -> None:
        """What concerns all parts, and names those that are missing."""
        while not self._here.quiet.is_set():
            await self._here.do("stats", [], self._queue.stats)
            await self._here.do("topics", [], self._queue.topics)
            await self._here.do("messages", [], lambda: self._queue.messages(CHANGED, limit=5))
            self._here.hand.beside(-1, self._pause())
            await self._here.hand.pause(2 * PACE)

    async def _pause(self) -> None:
        """It has to reach all parts."""
        await self._here.do("pause", PARTS, lambda: self._queue.pause("paused"))
        await self._here.do("resume", PARTS, lambda: self._queue.resume("paused"))


async def heard(here: Here, topic: str) -> Any:
    """What `listen` yields until it is over. It has no reason to end before."""
    listening = here.hand.queue.listen(topic, limit=60, lease=LEASE)
    step, close = (
        (listening.__anext__, listening.aclose) if here.hand.colour == "async" else (listening.__next__, listening.close)
    )
    try:
        while not here.over.is_set():
            yield await here.hand(step)
    except EngineError as error:
        here.book.accuse(f"{here.named('listen')} ended: {error!r}", [])
    finally:
        await here.hand(close)
