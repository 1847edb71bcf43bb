# unasync: ../sync/engine.py
"""The PostgreSQL engine: each verb is one call of a function on the server."""

import contextlib
import os
import time
from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from bide.core.times import MAX_DELAY_MS
from bide.engines.aio import AsyncEngine
from bide.engines.base import (
    MAX_BATCH,
    SWEEP,
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
    total,
)
from bide.engines.gates import Called
from bide.engines.gates.aio import AsyncGates
from bide.engines.postgres import rows
from bide.engines.postgres.aio.connections import AsyncConnections
from bide.engines.postgres.aio.gates import AsyncPostgresGates
from bide.engines.postgres.aio.join import AsyncJoiner
from bide.engines.postgres.aio.results import AsyncPostgresResults
from bide.engines.postgres.aio.wakeup import AsyncWaker
from bide.engines.postgres.failures import Tries
from bide.engines.postgres.gates import TURNS
from bide.engines.postgres.layout import filled
from bide.engines.postgres.location import Address
from bide.engines.postgres.long_transactions import FIND, LongTransactions
from bide.engines.postgres.recent import BEGINNING, Bounds, Recent
from bide.engines.results.aio import AsyncResults
from bide.errors import BadOption, EngineError, OutcomeUnknown, Unavailable
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats
from bide.wakeable import AsyncSignal

BRIEFLY = 0.1  # the timeout of a caller in a hurry, in seconds: claims and upkeep of others have let go of a message by then
LOCKED = 0.3  # the timeout of ends, of which all are of messages that another transaction has locked
TEND = 1.0  # seconds for which nothing needs upkeep when it was just done
FEW = 8  # topics that the first statement of stats counts
UPKEEP = [""]  # what it has in place of topics


class AsyncPostgres(AsyncEngine):
    def __init__(self, address: Address, capabilities: Capabilities, dead_for: int, dead_max: int) -> None:
        self.capabilities = capabilities
        self._address = address
        self._dead_for = dead_for
        self._dead_max = dead_max
        self._calls = {verb: filled(call, address.schema) for verb, call in rows.CALLS.items()}
        self._connections = AsyncConnections(address)
        self._joining = AsyncJoiner(address, lambda sql: self._connections.run(sql, ()))
        self._waking: AsyncWaker | None = None
        self._lane = os.urandom(8).hex()
        self._number = 0
        self.gates: AsyncGates = AsyncPostgresGates(self._connections, address.schema, self._request)
        self.results: AsyncResults = AsyncPostgresResults(self._connections, address.schema, self._join)
        self._bounds = Bounds()  # of claims
        self._upkeep = Bounds()
        self._long = LongTransactions()
        self._tended = -TEND  # when nothing was left to tend
        self._ahead = 0
        self._locked = Recent()  # tokens of deliveries that were told as locked, and not for a moment

    async def open(self) -> None:
        if self._waking is None:
            try:
                await self._connections.prepare()
                await self._joining.locate()
            except BaseException:
                await self._connections.drop_idle()
                raise
            polls = self._address.wake == "poll" or (self._address.wake == "auto" and self._connections.pooled)
            self._waking = AsyncWaker(self._connections, self._address.schema, self._bounds.lower, polls=polls)

    async def close(self) -> None:
        if self._waking is not None:
            await self._waking.close()
        await self._connections.close()

    def abandon(self) -> None:
        if self._waking is not None:
            self._waking.abandon()
        self._connections.abandon()

    def ahead(self, ref: Ref) -> int:
        return self._ahead

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        if not messages:
            return []
        if connection is not None:
            joined = await self._ask("put", [None, *rows.put_args(messages, self._dead_max), [], now], connection=connection)
            return rows.sent_of(messages, joined)
        waking, began, request = self._awake(), time.monotonic(), self._request()
        topics = {new.topic for new in messages if new.at is None and not new.delay}  # that others have to be told of
        quiet = waking.quiet(waking.sends, topics)
        try:
            if rows.is_plain(messages):
                verb, args = "put_plain", [request, *rows.plain_args(messages[0]), bool(quiet), now]
            else:
                verb, args = "put", [request, *rows.put_args(messages, self._dead_max), quiet, now]
            large = sum(len(new.body) for new in messages)
            found = await self._connections.run(self._calls[verb], args, acts=True, large=large)
        except OutcomeUnknown as lost:
            own = [rows.own_operation(request, place) for place in range(len(messages))]
            operations = [new.operation or mine for new, mine in zip(messages, own, strict=True)]
            raise OutcomeUnknown(f"{lost} Sending again with the error's operation acts once.", operations=operations) from lost
        sent = rows.sent_of(messages, found)
        await waking.told(waking.sends, topics, quiet, began, min(each.due for each in sent))
        return sent

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        look = self._bounds.look(topics if now is None else (), time.monotonic())
        firsts = look.firsts if now is None else [BEGINNING] * len(topics)
        waking, began = self._awake(), time.monotonic()
        quiet = waking.quiet(waking.claims, topics)
        args = [list(topics), rows.numbers(firsts), limit, lease, request or self._request(), quiet, now]
        claim, self._ahead, took, unreadable = rows.claim_of(await self._ask("claim", args))
        if unreadable:
            await self._bury(unreadable, now)
        soon = (claim.next_due - claim.now) / 1000 if now is None and claim.next_due is not None else 0.0
        waking.looked(topics, began, time.monotonic() + soon if soon > 0 else None)
        if claim.next_due is not None and claim.next_due <= claim.now:
            await waking.told(waking.claims, topics, quiet, began, claim.next_due)
        if now is not None:
            return claim
        self._bounds.learn(look, min(claim.now, claim.next_due or claim.now), took, len(claim.messages))
        left = self._tended + TEND - look.at
        return replace(claim, upkeep=claim.now + round(1000 * left)) if left > 0 else claim

    async def _bury(self, ends: Sequence[End], now: int | None) -> None:
        """What can't be buried now must not keep what came with it from being handled. It comes back when its lease ends."""
        with contextlib.suppress(EngineError):
            await self.settle(ends, now=now)

    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        if not ends:
            return []
        tries, with_others = Tries(LOCKED), Tries(BRIEFLY)
        answers: dict[int, Ended | None] = dict.fromkeys(range(len(ends)))
        try:
            while left := [place for place, answer in answers.items() if answer is None]:
                told = rows.settle_args([ends[place] for place in left])
                args = [self._named(connection), *told, connection is not None, self._dead_max, now]
                ended = rows.ended_of(await self._ask("settle", args, acts=True, connection=connection))
                answers.update(zip(left, ended, strict=True))
                if None in ended:
                    locked = [ends[place].token for place, answer in answers.items() if answer is None]
                    lasts = with_others.over or all(map(self._locked.at, locked))
                    if tries.over or (lasts and len(locked) < len(ends)):  # who has an answer does not wait for the others
                        self._locked.note(locked, time.monotonic())
                        raise rows.locked(list(answers.values()), "deliveries have not ended", "end them")
                    await AsyncSignal().wait(tries.pause())
            return [answer for answer in answers.values() if answer is not None]
        finally:  # it may have been done
            for topic in {end.topic for end in ends if end.verdict == "release" and not end.delay}:
                self._bounds.back(topic)

    async def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        tries = Tries(BRIEFLY if brief else self._address.timeout)
        answers: dict[Hold, bool | None] = dict.fromkeys(holds)
        while left := [hold for hold, answer in answers.items() if answer is None]:
            answers |= rows.extended_of(left, await self._ask("extend", [*rows.hold_args(left), lease, now]))
            if tries.over and None in answers.values():
                raise rows.locked([answers[hold] for hold in holds], "leases were not renewed", "extend them")
            if None in answers.values():
                await AsyncSignal().wait(tries.pause())
        return [answers[hold] is True for hold in holds]

    async def cancel(
        self,
        refs: Sequence[Ref],
        *,
        seen: Sequence[Seen] | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[CancelResult]:
        verb, told = ("cancel", rows.ref_args(refs)) if seen is None else ("cancel_seen", rows.seen_args(refs, seen))
        args = [self._named(connection), *told, now]
        return [CancelResult(result) for (result,) in await self._ask(verb, args, acts=True, connection=connection)]

    async def reschedule(
        self,
        moves: Sequence[Move],
        *,
        condition: Condition | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[RescheduleResult]:
        plain = condition is None and all(each.seen is None for each in moves)
        verb, told = ("reschedule", rows.move_args(moves)) if plain else ("move_seen", rows.move_seen_args(moves, condition))
        found = await self._ask(verb, [self._named(connection), *told, now], acts=True, connection=connection)
        return [RescheduleResult(result) for (result,) in found]

    async def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        look = self._upkeep.look(UPKEEP if now is None else (), time.monotonic())
        first = look.firsts[0] if now is None else BEGINNING
        args = [budget, ended_by, self._dead_for, self._dead_max, first, *TURNS, now]
        [[*did, gates, waiters, next_in, at, took]] = await self._ask("tend", args)
        tended = replace(Tended(*did), called=tuple(map(Called, gates or (), waiters or ())), next_in=next_in)
        if now is None:
            if tended.returned:
                self._bounds.forget()  # they have the due times that they had
            if not tended.more:
                self._upkeep.learn(look, at if ended_by is None else min(at, ended_by), took, tended.returned + tended.expired)
                self._tended = look.at
            await self._warn()
        return tended

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        await self._awake().wait(topics, self._bounds.patience(topics, time.monotonic(), min(timeout, SWEEP)))

    async def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        found = rows.got_of(await self._ask("get", [*rows.ref_args(refs), now]))
        return [found.get(place) for place in range(1, len(refs) + 1)]

    async def scan(
        self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None
    ) -> Scanned:
        return rows.scanned_of(await self._ask("scan", [topic, state, *rows.read_mark(after), limit + 1, now]), limit)

    async def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        asked = [False, *[None] * 3] if window is None else [window.about, window.start, window.end, window.parts]
        names = [topic] if topic is not None else sorted({row[0] for row in await self._ask("topics", [])}.difference(but))
        each: dict[str, Stats] = {}
        many = FEW
        while names:  # some at a time, so that no statement takes long
            began = time.monotonic()
            found = await self._ask("stats", [names[:many], rows.EXACT, *asked, now])
            each.update((row[0], stats) for row in found if (stats := rows.stats_of(row)) is not None)
            names = names[many:]
            many = rows.next_many(many, time.monotonic() - began)
        return total(each.values(), each if topic is None else {}, 0 if window is None else window.parts)

    async def requeue(
        self,
        topic: str,
        ids: Sequence[str] | None = None,
        *,
        delay: int = 0,
        over: int = 0,
        limit: int = MAX_BATCH,
        now: int | None = None,
    ) -> Swept:
        named = None if ids is None else [rows.private_id(id) for id in ids]
        [found] = await self._ask("requeue", [self._request(), topic, named, delay, over, limit, MAX_DELAY_MS, now], acts=True)
        return Swept(*found)

    async def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        if state == "leased":
            raise BadOption("Leased messages can't be purged: they end with their leases.")
        if ids is not None:
            named = [rows.private_id(id) for id in ids]
            [found] = await self._ask("purge_dead", [self._request(), topic, named, limit, now], acts=True)
        else:
            [found] = await self._ask("purge", [topic, state, limit, now], acts=True)
        return Swept(*found)

    async def pause(self, topic: str, paused: bool) -> None:
        await self._ask("pause", [topic, paused])
        self._bounds.lower(topic, 0)

    def _request(self) -> str:
        """A name for a call that acts once, however often it is repeated."""
        self._number += 1
        return f"{self._lane}-{self._number}"

    def _named(self, connection: object | None) -> str | None:
        """A call in the caller's transaction has no name, as it is not repeated."""
        return None if connection is not None else self._request()

    def _awake(self) -> AsyncWaker:
        if self._waking is None:
            raise Unavailable("The PostgreSQL engine is not open: open() it first.")
        return self._waking

    async def _warn(self) -> None:
        """Of transactions that make this slow."""
        if self._long.is_time():
            with contextlib.suppress(EngineError):
                self._long.warn(await self._connections.run(filled(FIND, self._address.schema), ()))

    async def _ask(self, verb: str, args: Sequence[Any], *, acts: bool = False, connection: object | None = None) -> list[Any]:
        if connection is not None:
            return await self._join(connection, self._calls[verb], args)
        return await self._connections.run(self._calls[verb], args, acts=acts)

    async def _join(self, connection: object, sql: str, args: Sequence[Any]) -> list[Any]:
        """In the caller's transaction."""
        self._awake()
        return await self._joining.run(connection, sql, args)
