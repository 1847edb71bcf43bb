"""Lists, requeues and purges the dead letters of a topic: they are in a queue of their own, which is walked from its head."""

import bisect
from collections.abc import Awaitable, Callable, Sequence

from bide.engines.base import Scanned, Swept
from bide.engines.rabbitmq.aio.line import AsyncLine
from bide.engines.rabbitmq.aio.sending import AsyncSender
from bide.engines.rabbitmq.aio.walking import walk
from bide.engines.rabbitmq.label import Delivered, Label
from bide.engines.rabbitmq.ladder import Names
from bide.engines.rabbitmq.location import Address
from bide.errors import BadOption


class AsyncDeadLetters:
    def __init__(self, address: Address, names: Names, line: AsyncLine, sender: AsyncSender) -> None:
        self._address = address
        self._names = names
        self._line = line
        self._sender = sender

    async def scan(self, topic: str, limit: int, after: str | None) -> Scanned:
        """A page, by the time of death and the id. `after`: those of the last one of the page before.

        All are looked at for each page: the broker keeps no order of messages that were taken and put back.
        """
        mark = _read_mark(after) or (-1, "")
        page: list[Delivered] = []
        async with walk(self._line, self._address, self._names.dead(topic)) as along:
            async for each in along.messages():
                if each.delivered is not None and _place(each.delivered) > mark:
                    bisect.insort(page, each.delivered, key=_place)
                    del page[limit + 1 :]
        stored = [each.label.stored(each.body) for each in page[:limit]]
        return Scanned(stored, _mark(page[limit - 1].label) if len(page) > limit else None)

    async def requeue(self, topic: str, ids: Sequence[str] | None, limit: int, due: Callable[[int], int], now: int) -> Swept:
        """`due` tells when number n of them is due."""

        async def revive(number: int, delivered: Delivered) -> None:
            await self._sender.send_all([(delivered.label.revived(due(number)), delivered.body)], now)

        return await self._sweep(topic, ids, limit, revive, revives=True)

    async def purge(self, topic: str, ids: Sequence[str] | None, limit: int) -> Swept:
        async def drop(number: int, delivered: Delivered) -> None:
            """It is acknowledged, and that is all."""

        return await self._sweep(topic, ids, limit, drop)

    async def _sweep(
        self,
        topic: str,
        ids: Sequence[str] | None,
        limit: int,
        do: Callable[[int, Delivered], Awaitable[None]],
        *,
        revives: bool = False,
    ) -> Swept:
        """`revives`: what somebody else has put there stays, since it is no message of bide's."""
        wanted = None if ids is None else set(ids)
        count = 0
        async with walk(self._line, self._address, self._names.dead(topic)) as along:
            async for each in along.messages():
                if each.delivered is None and (wanted is not None or revives):
                    continue
                if wanted is not None and each.delivered is not None and each.delivered.label.id not in wanted:
                    continue
                if count == limit:
                    return Swept(count, True)
                if each.delivered is not None:
                    await do(count, each.delivered)
                await along.drop(each)
                count += 1
                if wanted is not None and each.delivered is not None:
                    wanted.discard(each.delivered.label.id)
                    if not wanted:
                        break
        return Swept(count, False)


def _place(dead: Delivered) -> tuple[int, str]:
    return dead.label.died or 0, dead.label.id


def _mark(dead: Label) -> str:
    return f"{dead.died or 0}:{dead.id}"


def _read_mark(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    died, colon, id = text.partition(":")
    if not colon or not died.isdecimal() or not died.isascii() or not id:
        raise BadOption("`after` is not a mark of a page of dead letters: give what the page before has told.")
    return int(died), id
