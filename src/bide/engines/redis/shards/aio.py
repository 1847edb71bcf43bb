# unasync: sync.py
"""One shard: runs its scripts, and reads their answers."""

import os
from collections.abc import Sequence
from typing import Any

from bide.core.when import MAX_DELAY_MS
from bide.engines.base import Claim, End, Ended, Hold, Move, NewMessage, Ref, Stored, Swept, Tended, Window
from bide.engines.redis.failures import TooOld, Unanswered, Unpinned
from bide.engines.redis.lines.aio import AsyncLine, AsyncLines
from bide.engines.redis.plan import Arg, delivering, listing, looking, sending
from bide.engines.redis.script import scripts
from bide.engines.redis.server import AsyncServer
from bide.engines.redis.space import Space
from bide.errors import BideError, ConfigError, OutcomeUnknown, Unavailable
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats

FREE = b"free"  # a purge has left something to be freed
TRIES = 3  # of an operation that comes too late
LOOKS = ("get", "lease_ends", "leased", "scan", "stats", "time")  # scripts that change nothing
SAFE = "Sending again with this error's operation does it once."


class AsyncShard:
    def __init__(self, number: int, space: Space, lines: AsyncLines) -> None:
        self.number: int = number
        self.prefix: str = space.prefix(number)
        self._keys = (f"{self.prefix}meta", f"{self.prefix}-")
        self._space = space
        self._lines = lines
        self._purged: dict[tuple[str, State], bytes] = {}  # where purges of a topic go on that have not come to their end

    @classmethod
    def all_of(cls, space: Space) -> "list[AsyncShard]":
        lines = AsyncLines(AsyncServer(space.address))
        return [cls(number, space, lines) for number in range(space.shards)]

    async def greet(self) -> None:
        """See that the server is there, lets us in, keeps what it is given, and what time it is. A proxy can't be asked."""
        if not self._space.known:
            await self.tell_time()
        if self._space.address.wake == "poll":
            return
        self._space.judge(await self.command("INFO", "memory"))
        if self._space.address.wake == "expiry":
            try:
                told = await self.command("CONFIG", "GET", "notify-keyspace-events")
            except ConfigError:
                return  # many servers don't tell; then whoever runs them must know
            self._space.judge_events(told)

    async def tell_time(self) -> None:
        """So that we know it: an operation says when its sender last heard from the server."""
        await self._ask("time", (), None)

    async def ask_for_expiry(self) -> None:
        """From now on a wake-up is also an alarm key that expires."""
        await self._ask("expect", (), self._space.known)

    def abandon(self) -> None:
        self._lines.abandon()

    async def close(self) -> None:
        await self._lines.close()

    async def command(self, *args: Any) -> Any:
        """What a command answers that changes nothing."""
        line = await self._lines.take()
        try:
            return await line.command(*args)
        except Unanswered as lost:
            raise Unavailable(str(lost)) from None
        finally:
            await self._lines.give(line)

    async def put(self, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
        asked, salt = sending.put(messages), os.urandom(2)
        line = await self._lines.take()
        try:
            reply = await self._timely(line, asked.verb, asked.args, now, once=True, salt=salt)
        except Unanswered as lost:
            raise OutcomeUnknown(f"{lost} {SAFE}", operations=asked.operations(self.number, lost.lane, lost.number)) from None
        finally:
            await self._lines.give(line)
        return sending.put_answer(asked, messages, self.number, salt, reply)

    async def claim(
        self, me: str, topics: Sequence[str], limit: int, lease: int, request: str, now: int | None, keep: int = 0
    ) -> Claim:
        """`keep`: of how many topics, the first ones named, one message is taken or a place of the limit is left."""
        reply = await self._do("claim", (me, request, lease, limit, keep, *topics), now)
        return delivering.claim_answer(self.number, request, reply)

    async def leave(self, me: str, topics: Sequence[str]) -> bool:
        """Whoever goes takes no alarm along. False when the server is away: it is asked once."""
        line = await self._lines.take()
        try:
            head = self._head(line, None, b"", (me, *topics), once=False)
            await line.run(scripts()["leave"], self._keys, head, patience=0.0)
        except (BideError, Unanswered, TooOld, Unpinned):
            return False
        finally:
            await self._lines.give(line)
        return True

    async def hear(self, topics: Sequence[str]) -> bool:
        """Whether somebody has pushed a token, which is then used up."""
        _, woken = await self._ask("hear", topics, None)
        return bool(woken)

    async def settle(self, ends: Sequence[End], now: int | None) -> list[Ended]:
        asked = delivering.settle(ends, self._space.dead_max)
        return delivering.settle_answer(asked, len(ends), await self._do("settle", asked.args, now))

    async def extend(self, holds: Sequence[Hold], lease: int, now: int | None) -> list[bool]:
        groups, args = delivering.extend(holds, lease)
        return delivering.extend_answer(groups, len(holds), await self._do("extend", args, now))

    async def cancel(self, refs: Sequence[Ref], now: int | None) -> list[CancelResult]:
        return sending.cancel_answer(await self._do("cancel", [len(refs), *sending.refs(refs)], now))

    async def reschedule(self, moves: Sequence[Move], now: int | None) -> list[RescheduleResult]:
        return sending.reschedule_answer(await self._do("reschedule", sending.reschedule(moves), now))

    async def tend(self, budget: int, ended_by: int | None, now: int | None) -> Tended:
        _, returned, buried, expired, dropped, more = await self._ask(
            "tend", (budget, self._space.dead_max, self._space.dead_for, "" if ended_by is None else ended_by), now
        )
        return Tended(returned, buried, expired, dropped, bool(more))

    async def get(self, refs: Sequence[Ref], now: int | None) -> list[Stored | None]:
        named = [sending.ref(each) for each in refs]
        reading, lease_ends = listing.Reading(named), listing.LeaseEnds(())
        for _ in range(TRIES):  # who is leased may end before its lease is found
            reading = await self._read(named, now)
            lease_ends = listing.LeaseEnds(reading.leased().values())
            while args := lease_ends.args():
                lease_ends.hear(await self._ask("lease_ends", args, now))
            if len(lease_ends.found) == len(set(reading.leased().values())):
                break
        return reading.stored(self.number, lease_ends.found)

    async def find(self, search: listing.Search, now: int | None) -> None:
        while args := search.args():
            search.hear(await self._ask(search.verb, args, now))

    async def show(self, topic: str, found: Sequence[listing.Found], now: int | None) -> list[Stored | None]:
        reading = await self._read([("id", each.topic, each.local, b"") for each in found], now)
        pairs = zip(found, reading.told, strict=True)
        return [listing.shown(each, topic, reading.now, told) for each, told in pairs]

    async def _read(self, named: Sequence[Sequence[Arg]], now: int | None) -> listing.Reading:
        reading = listing.Reading(named)
        while args := reading.args():
            reading.hear(await self._ask("get", args, now))
        return reading

    async def stats(self, topic: str | None, window: Window | None, now: int | None) -> dict[str, Stats]:
        names = (
            [topic] if topic is not None else [name.decode() for name in await self.command("HKEYS", self.prefix + "topics")]
        )
        counting = looking.Counting(names, window)
        while args := counting.args():
            counting.hear(await self._ask("stats", args, now))
        return counting.found

    async def requeue(self, topic: str, ids: Sequence[str] | None, delay: int, limit: int, now: int | None) -> Swept:
        pages = [None] if ids is None else [ids[i : i + sending.PART] for i in range(0, len(ids), sending.PART)]
        did = Swept(0, False)
        while pages:
            some = pages[0]
            most = min(limit - did.count, sending.PART)
            args = [
                topic,
                sending.when(delay, None),
                MAX_DELAY_MS,
                most,
                int(some is not None),
                *sending.named_dead(some or ()),
            ]
            _, count, more, keyless = await self._do("requeue", args, now)
            did = Swept(did.count + count, bool(more), did.keyless + keyless)
            if some is not None or not more:
                pages.pop(0)
            if did.count >= limit:
                break
        return Swept(did.count, did.more or bool(pages), did.keyless)

    async def purge(self, topic: str, state: State, limit: int, now: int | None) -> Swept:
        """A page, which begins where the last one stopped and goes around until nothing of the state is left."""
        mark = self._purged.pop((topic, state), b"")
        whole, count = not mark, 0
        while True:
            _, did, more, mark = await self._do("purge", [topic, state, limit - count, mark], now)
            count += did
            if more and count:
                self._purged[topic, state] = mark
            if count == limit or (more and count) or (whole and not more):
                while mark == FREE:
                    _, _, _, mark = await self._do("purge", [topic, state, limit, mark], now)
                return Swept(count, bool(more) or not whole)
            whole = whole or not more
            mark = mark if more else b""

    async def pause(self, topic: str, paused: bool) -> None:
        await self._do("pause", (topic, int(paused)), self._space.known)  # no time passes: what is due does not matter here

    async def _ask(self, verb: str, args: Sequence[Any], now: int | None) -> Any:
        """Run a script that may be run again at will."""
        return await self._run(verb, args, now, once=False)

    async def _do(self, verb: str, args: Sequence[Any], now: int | None) -> Any:
        """Run a script that must act once."""
        return await self._run(verb, args, now, once=True)

    async def _run(self, verb: str, args: Sequence[Any], now: int | None, *, once: bool) -> Any:
        line = await self._lines.take()
        try:
            return await self._timely(line, verb, args, now, once=once)
        except Unanswered as lost:
            raise (Unavailable if verb in LOOKS else OutcomeUnknown)(str(lost)) from None
        finally:
            await self._lines.give(line)

    async def _timely(
        self, line: AsyncLine, verb: str, args: Sequence[Any], now: int | None, *, once: bool, salt: bytes = b""
    ) -> Any:
        """Run a script; again when it came too late to act, as when we have not heard from the server for long."""
        for _ in range(TRIES):
            if once:
                line.next_number()
            try:
                return self._told(await line.run(scripts()[verb], self._keys, self._head(line, now, salt, args, once=once)))
            except TooOld as late:  # nothing was done, and now we know what time it is
                self._space.hear(late.now)
            except Unpinned:
                await self._pin(line, now)
        raise Unavailable(f"{self._space.address.shown} answers too late for anything to be done. Nothing was done; try again.")

    async def _pin(self, line: AsyncLine, now: int | None) -> None:
        """Have it said how many shards there are, in shard 0 first: whoever counts them otherwise is refused from then on."""
        for number in (0, self.number):
            prefix = self._space.prefix(number)
            head = self._head(line, now, b"", (), once=False)
            self._told(await line.run(scripts()["pin"], (f"{prefix}meta", f"{prefix}-"), head))

    def _head(self, line: AsyncLine, now: int | None, salt: bytes, args: Sequence[Any], *, once: bool) -> list[Any]:
        """What every script is told first."""
        lane, number = (line.lane, line.number) if once else ("", 0)
        until = self._space.until(now, line.patience)
        return ["" if now is None else now, self._space.known, lane, number, salt, self._space.shards, until, *args]

    def _told(self, reply: Any) -> Any:
        self._space.hear(int(reply[0]))
        return reply
