"""Living holders of leases and locks, who keep them while a part is away; and others who would take what is not kept."""

import functools
import threading
from typing import Any

from bide import Locked, LockLost
from bide.engines.redis.protocol.encoding import name_of
from tests.redis.hands import PACE, PARTS, Here
from tests.redis.users import LEASE, Deed, heard

MANY = 4  # messages of each part


class Holders:
    """By a queue of their own, so that its first renewal may come when a part is away already."""

    def __init__(self, here: Here, release: threading.Event) -> None:
        self._here = here.other()
        self._others = here
        self._release = release
        self._topic = f"held.{here.hand.colour}"
        self._locks = {part: here.names.value(part) for part in PARTS}
        self._left = threading.Semaphore(0)
        self._all = MANY * len(PARTS) + len(PARTS)

    def deeds(self) -> list[Deed]:
        return [self._hold_leases, *(functools.partial(self._hold_lock, part) for part in PARTS)]

    def thieves(self) -> list[Deed]:
        return [self._take_leases, *(functools.partial(self._take_lock, part) for part in PARTS)]

    def wait_until_held(self, patience: float) -> None:
        for _ in range(self._all):
            assert self._left.acquire(timeout=patience), "not all is held"

    async def _hold_leases(self) -> None:
        here = self._here
        for part in PARTS:
            for _ in range(MANY):
                key = here.names.key(self._topic, part)
                here.ledger.accepted(await here.hand(functools.partial(here.hand.queue.send, self._topic, key=key)))
        held: list[Any] = []
        source = heard(here, self._topic)
        while len(held) < MANY * len(PARTS):
            held.append(await anext(source))
            here.ledger.handed_out(held[-1].id, held[-1].due)
            self._left.release()
        while not self._release.is_set():
            await here.hand.pause()
        for delivery in held:
            part = name_of(delivery.id).shard
            here.hand.beside(part, here.do("ack of what was held", [part], delivery.ack))
        while not here.over.is_set():
            await here.hand.pause()
        await source.aclose()

    async def _take_leases(self) -> None:
        async for delivery in heard(self._others, self._topic):
            part = name_of(delivery.id).shard
            self._others.ledger.handed_out(delivery.id, delivery.due)
            if not self._release.is_set():
                self._others.book.accuse(self._others.named("lease: what is held was handed out again"), [part])
            self._others.hand.beside(part, self._others.do("ack again", [part], delivery.ack))

    async def _hold_lock(self, part: int) -> None:
        here = self._here
        lock = here.hand.queue.lock(self._locks[part], ttl=LEASE)
        await here.hand.enter(lock)
        self._left.release()
        while not self._release.is_set() and not lock.lost:
            await here.hand.pause()
        if lock.lost:
            here.book.accuse(here.named("lock: it was lost while it was held"), [part])
        try:
            await here.hand.leave(lock)
        except LockLost as error:
            here.book.accuse(here.named(f"lock: {error}"), [part])

    async def _take_lock(self, part: int) -> None:
        here = self._others
        while not self._release.is_set():
            lock = here.hand.queue.lock(self._locks[part], ttl=LEASE)
            if await here.do("lock that is taken", [part], functools.partial(self._try, lock)):
                if not self._release.is_set():
                    here.book.accuse(here.named("lock: what is held was given to another"), [part])
                await here.do("unlock", [part], functools.partial(here.hand.leave, lock))
            await here.hand.pause(2 * PACE)

    async def _try(self, lock: Any) -> bool:
        try:
            await self._others.hand.enter(lock)
        except Locked:
            return False
        return True
