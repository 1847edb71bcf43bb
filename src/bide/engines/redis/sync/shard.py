# Generated from ../aio/shard.py by tools/unasync.py; change that file instead.
"""One shard: each method runs a script, or several until all is told."""

import contextlib
import os
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from bide.engines.base import (
    SWEEP,
    Claim,
    Condition,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Ref,
    Seen,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.engines.redis.failures import BRIEF, Unanswered, Unconfirmed
from bide.engines.redis.namespace import Lead, Namespace, ServerClock
from bide.engines.redis.protocol import Arg, claims, gating, sends, stored
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.sync.calls import Calls
from bide.engines.redis.sync.connections import Connections
from bide.engines.redis.topology import ShardSpread
from bide.errors import BideError, ConfigError, ConfirmTimeout, EngineError, OutcomeUnknown, Unavailable
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats

R = TypeVar("R")
REFUSALS = frozenset(
    {CancelResult.RUNNING, CancelResult.GONE, RescheduleResult.RUNNING, RescheduleResult.DEAD, RescheduleResult.GONE, "lost"}
)
FREE = b"free"  # a purge that has left keys to free
TRIES = 3  # to find the ends of leases
AHEAD = round(1.2 * SWEEP * 1000)  # ms: alarms are set for what is due as soon as that
SAFE = "Sending again with this error's operation does it once."


class Shard:
    def __init__(self, number: int, namespace: Namespace, connections: Connections, first: "Shard | None" = None) -> None:
        """`first`: shard 0, if this is another one."""
        self.number: int = number
        self.prefix: str = namespace.prefix(number)
        self.connections: Connections = connections
        self.clock: ServerClock = connections.server.clock
        self.calls: Calls = Calls(number, namespace, connections, first.calls if first else None)
        self._namespace = namespace
        self.now: int = 0  # engine time, as the last claim told
        self.ahead: int = 0  # ms by which it was ahead of the server's clock
        self.behind: int = 0  # ms by which it was behind that of all shards together
        self._lead = Lead()
        self._purged: dict[tuple[str, State], bytes] = {}  # where unfinished purges go on

    def greet(self, patience: float | None = None) -> None:
        """Check that the server answers, lets us in and evicts nothing, and learn its time."""
        new = not self.clock.known
        if new:
            self.tell_time(patience)
        self.calls.check(patience)
        if new and self.number and self._namespace.is_stored and self.known_spread(patience) is None:
            with contextlib.suppress(BideError):  # this user may not write
                self.calls.pin(patience=patience)  # or who comes while shard 0 is away would not know

    def known_spread(self, patience: float | None = None) -> str | None:
        """How all shards are spread, as this one has it; None: nothing is stored yet."""
        [spread] = self.calls.command("HMGET", f"{self.prefix}meta", "shards", patience=patience)
        return spread.decode() if spread else None

    def since_spread(self) -> int:
        """The ms since this shard has heard of the way in which all are spread now."""
        now = int((self.calls.ask("time", (), None))[0])
        [since] = self.calls.command("HMGET", f"{self.prefix}meta", "respread")
        return now - int(since or 0)

    def bound_for(self) -> int:
        """For how many ms it still has a key that is sent once in a period, or keeps results."""
        now = int((self.calls.ask("time", (), None))[0])
        told = self.calls.command("HMGET", f"{self.prefix}meta", "unique", "kept")
        return max(0, *(int(until or 0) - now for until in told))

    def tell_time(self, patience: float | None = None) -> None:
        """Learn the time: an operation says when its sender last heard from the server."""
        self.calls.ask("time", (), None, patience=patience)

    def ask_for_expiry(self, patience: float | None = None) -> None:
        """From now on each wake-up also sets an alarm key that expires."""
        self.calls.ask("expect", (), self.clock.known, patience=patience)

    @property
    def place(self) -> str:
        """Which server has it now, for people."""
        return self.connections.server.place

    @property
    def silent(self) -> bool:
        """Whether its server does not answer, as far as is known."""
        return self.connections.server.presence.silent

    @property
    def is_all_silent(self) -> bool:
        """Whether that is so of all that its server has, and not of one slot only."""
        excuse = self.connections.server.presence.excuse
        return self.silent and not (excuse is not None and excuse.slot)

    @property
    def heard(self) -> float:
        """When its server last answered, monotonic."""
        return self.connections.server.presence.heard

    def is_kept_from(self, error: Exception) -> bool:
        """Whether its server does not answer, or refuses the user or the password: that is no matter of other servers."""
        return isinstance(error, Unavailable) or (isinstance(error, ConfigError) and self.silent)

    def is_away(self) -> bool:
        """Whether it is silent, but at times the server is asked again, which nobody waits for."""
        return self.silent and self.calls.is_away()

    def absence(self) -> Unavailable:
        """What to tell of a call that was not made, as it is away."""
        return Unavailable(f"{self.connections.server.presence.state}. Nothing was done there.")

    def is_out_of_sight(self) -> bool:
        """Whether it is away also for those who only look."""
        return self.is_away() and not self.connections.server.presence.only_looks

    def left(self, error: BideError) -> Swept:
        """Of a page that failed with it. What it may have done, or why it refused, its own sentence tells."""
        if not isinstance(error, Unavailable) or not self.silent:
            return Swept(0, False, refused=[str(error)])
        presence = self.connections.server.presence
        if presence.excuse:
            return Swept(0, False, refused=[f"{presence.state}."])
        return Swept(0, False, missing=[self.place])

    def unblock(self, number: int) -> bool:
        """Wake a blocked listener; False when it is not blocked, or not yet. A server that is away is not waited for.

        A server may crash that is told to wake one whom a pause of writes holds back: Redis 7.0.15 does. There is such a pause
        in each `CLUSTER FAILOVER`, so this waits until it is over.
        """
        return bool(self.calls.command("CLIENT", "UNBLOCK", number, patience=BRIEF, as_write=True))

    def put(self, messages: Sequence[NewMessage], planned: ShardSpread, now: int | None, **how: Any) -> list[Sent]:
        """`how`: `patience`, seconds until it is Unavailable, if nothing was done; without `insist` it is unknown sooner, too.

        Raises OtherSpread if messages are not spread as `planned`, so that others may take what is new.
        """
        asked, salt = sends.put(messages), os.urandom(2)
        try:
            reply = self.calls.do(asked.verb, asked.args, now, salt=salt, planned=planned, **how)
        except Unanswered as lost:
            raise OutcomeUnknown(
                f"{lost} {SAFE}", operations=asked.operations(messages, self.number, lost.lane, lost.number)
            ) from None
        except Unconfirmed as short:
            named = asked.operations(messages, self.number, short.lane, short.number)
            done = sends.put_answer(asked, messages, self.number, salt, short.answer)
            raise ConfirmTimeout(f"{short.sentence} {SAFE}", operations=named, done=done) from None
        # a shard that takes what is new knows of all
        return sends.put_answer(asked, messages, self.number, salt, reply)  # type: ignore[return-value]

    def put_known(self, messages: Sequence[NewMessage], planned: ShardSpread, now: int | None, **how: Any) -> list[Sent | None]:
        """The same of a shard that empties itself: None for what it knows nothing of."""
        return list[Sent | None](self.put(messages, planned, now, **how))

    def claim(
        self,
        me: str,
        topics: Sequence[str],
        limit: int,
        lease: int,
        request: str,
        now: int | None,
        *,
        keep: int = 0,
        woken: bool = True,
        patience: float | None = None,
    ) -> Claim:
        """`keep`: of so many of the first topics the claim takes one message each, or leaves room for one.

        `woken`: wake tokens of the topics may be left. When nothing is due they are removed, or each would wake once more.
        """
        asked = (me, request, str(lease), str(limit), str(keep), "1" if woken else "0")
        began = time.monotonic()
        reply = claims.ClaimReply(*self.calls.do("claim", (*asked, *topics), now, patience=patience))
        plan = partial(self._lead.plan, began, time.monotonic())
        self.now = int(reply.now)
        self.ahead = self.now - reply.wall
        claim, unreadable = claims.claim_answer(self.number, request, reply, plan)
        if unreadable:
            with contextlib.suppress(EngineError):  # they come back when their lease ends
                self.settle(unreadable, now, patience=patience)
        return claim

    def leave(self, me: str, topics: Sequence[str]) -> bool:
        """Give back the alarms of an engine that closes. False when the server is away: it is asked once."""
        return self.calls.in_passing("close", (me, *topics))

    def hear(self, topics: Sequence[str]) -> bool:
        """Whether a wake token was there; it is taken. A server that is away is not waited for."""
        _, woken = self.calls.ask("hear", topics, None, patience=BRIEF)
        return bool(woken)

    def sweep(self, topics: Sequence[str]) -> bool:
        """Whether there is something to do for a sleeper that nothing woke, or there will be before the next sweep.

        A server that is away is not waited for.
        """
        _, awake = self.calls.ask("sweep", (AHEAD, *topics), None, patience=BRIEF)
        return bool(awake)

    def settle(self, ends: Sequence[End], now: int | None, *, patience: float | None = None) -> list[Ended]:
        asked = claims.settle(ends, self._namespace.dead_max(self.number))
        short = list[str]()
        reply = self.calls.do("settle", asked.args, now, patience=patience, short=short)
        ended = claims.settle_answer(asked, len(ends), reply)
        return _but_for_refusals(ended, short) if short else ended

    def extend(self, holds: Sequence[Hold], lease: int, now: int | None, *, patience: float | None = None) -> list[bool]:
        groups, args = claims.extend(holds, lease)
        return claims.extend_answer(groups, len(holds), self.calls.do("extend", args, now, patience=patience))

    def cancel(self, refs: Sequence[Ref], now: int | None) -> list[CancelResult]:
        args, short = [len(refs), *sends.refs(refs, self.number)], list[str]()
        results = sends.cancel_answer(self.calls.do("cancel", args, now, short=short))
        return _but_for_refusals(results, short) if short else results

    def cancel_seen(self, both: Sequence[tuple[Ref, Seen]], now: int | None) -> list[CancelResult]:
        args, short = sends.seen(both, self.number), list[str]()
        results = sends.cancel_answer(self.calls.do("cancel_seen", args, now, short=short))
        return _but_for_refusals(results, short) if short else results

    def reschedule(self, moves: Sequence[Move], condition: Condition | None, now: int | None) -> list[RescheduleResult]:
        args, short = sends.reschedule(moves, condition, self.number), list[str]()
        results = sends.reschedule_answer(self.calls.do("reschedule", args, now, short=short))
        return _but_for_refusals(results, short) if short else results

    def tend(self, budget: int, ended_by: int | None, now: int | None, *, patience: float | None = None) -> Tended:
        args = (budget, self._namespace.dead_max(self.number), self._namespace.dead_for, "" if ended_by is None else ended_by)
        return gating.tend_answer(self.calls.ask("tend", args, now, patience=patience))

    def get(self, refs: Sequence[Ref], now: int | None, patience: float | None = None) -> list[Stored | None]:
        named = [sends.ref(each, self.number) for each in refs]
        reading, leases = stored.Lookup(named), stored.LeaseHolders(())
        for _ in range(TRIES):  # a message may end before its lease is found
            reading = self._read(named, now, patience)
            leases = stored.LeaseHolders(reading.leased().values())
            while args := leases.args():
                leases.hear(self.calls.ask("lease_ends", args, now, patience=patience))
            if len(leases.found) == len(set(reading.leased().values())):
                break
        return reading.stored(self.number, leases.found)

    def find(self, search: stored.Search, now: int | None, patience: float | None) -> None:
        while args := search.args():
            search.hear(self.calls.ask(search.verb, args, now, patience=patience))

    def show(
        self, topic: str, found: Sequence[stored.FoundMessage], now: int | None, patience: float | None = None
    ) -> list[Stored | None]:
        reading = self._read([("id", each.topic, each.local, b"") for each in found], now, patience)
        pairs = zip(found, reading.told, strict=True)
        return [stored.shown(each, topic, reading.now, told) for each, told in pairs]

    def _read(self, named: Sequence[Sequence[Arg]], now: int | None, patience: float | None = None) -> stored.Lookup:
        reading = stored.Lookup(named)
        while args := reading.args():
            reading.hear(self.calls.ask("get", args, now, patience=patience))
        return reading

    def stats(
        self, topic: str | None, but: Collection[str], window: Window | None, now: int | None, patience: float | None = None
    ) -> dict[str, Stats]:
        if topic is not None:
            names = [topic]
        else:
            known = map(bytes.decode, self.calls.command("HKEYS", self.prefix + "topics", patience=patience))
            names = [each for each in known if each not in but]
        counted = stored.TopicCounts(names, window)
        while args := counted.args():
            counted.hear(self.calls.ask("stats", args, now, patience=patience))
        return counted.found

    def requeue(
        self, topic: str, ids: Sequence[str] | None, places: sends.DueSpan, now: int | None, *, patience: float | None = None
    ) -> Swept:
        pages: list[Sequence[str] | None] = [None] if ids is None else [*self._pages(ids)]
        did, short = Swept(0, False), list[str]()
        while pages:
            some = pages[0]
            most = min(places.left - did.count, sends.PART)
            which = [int(some is not None), *sends.named_dead(some or ())]
            args = [topic, *places.args(did.count), most, *which]
            try:
                _, count, more, keyless = self.calls.do("requeue", args, now, patience=patience, short=short)
            except BideError as error:
                return self._stopped(replace(did, more=False), short, error)
            did = Swept(did.count + count, bool(more), did.keyless + keyless)
            if some is not None or not more:
                pages.pop(0)
            if did.count >= places.left:
                break
        return Swept(did.count, did.more or bool(pages), did.keyless, unconfirmed=_unconfirmed(short, did.count))

    def _stopped(self, did: Swept, short: Sequence[str], error: BideError) -> Swept:
        """A page of which a part was done before it was refused, or not answered. Raises the error if nothing was."""
        if not did.count:
            raise error
        return replace(did, unconfirmed=_unconfirmed(short, did.count)) + self.left(error)

    def _pages(self, ids: Sequence[str]) -> list[Sequence[str]]:
        """The ids that are of this shard, in parts."""
        own = [id for id in ids if name_of(id).shard == self.number]
        return [own[i : i + sends.PART] for i in range(0, len(own), sends.PART)]

    def purge_dead(
        self, topic: str, ids: Sequence[str], limit: int, now: int | None, *, patience: float | None = None
    ) -> Swept:
        """Drop the dead letters that have these ids."""
        pages, did, short = self._pages(ids), Swept(0, False), list[str]()
        while pages and not did.more:
            args = [topic, limit - did.count, *sends.named_dead(pages.pop(0))]
            try:
                _, count, more = self.calls.do("purge_dead", args, now, patience=patience, short=short)
            except BideError as error:
                return self._stopped(did, short, error)
            done = did.count + count
            did = Swept(done, bool(more), unconfirmed=_unconfirmed(short, done))
        return did

    def purge(self, topic: str, state: State, limit: int, now: int | None, *, patience: float | None = None) -> Swept:
        """Drop a page. It begins where the last page stopped, and goes round until nothing of the state is left."""
        mark = self._purged.pop((topic, state), b"")
        whole, count, short = not mark, 0, list[str]()

        def page(most: int, mark: bytes) -> Sequence[Any]:
            reply: Sequence[Any] = self.calls.do("purge", [topic, state, most, mark], now, patience=patience, short=short)
            return reply

        while True:
            _, did, more, mark = page(limit - count, mark)
            count += did
            if more and count:
                self._purged[topic, state] = mark
            if count == limit or (more and count) or (whole and not more):
                with contextlib.suppress(BideError):  # the next purge goes on freeing
                    while mark == FREE:
                        _, _, _, mark = page(limit, mark)
                return Swept(count, bool(more) or not whole, unconfirmed=_unconfirmed(short, count))
            whole = whole or not more
            mark = mark if more else b""

    def pause(self, topic: str, paused: bool) -> None:
        # no time passes, as what is due does not matter here
        self.calls.do("pause", (topic, int(paused)), self.clock.known)

    def count_pause(self) -> None:
        """Of shard 0, when all have paused a topic, or resumed it: so that new shards take it over."""
        self.calls.ask("count_pause", (), self.clock.known)

    def pauses(self) -> bytes:
        """How many were counted."""
        [count] = self.calls.command("HMGET", f"{self.prefix}meta", "pauses")
        return count or b""

    def respread(self, old: ShardSpread, new: ShardSpread, *pauses: bytes) -> bool:
        """Of shard 0: spread messages otherwise from now on, unless it has counted other `pauses`. Whether it does.

        Raises OtherSpread if they are not spread like `old`.
        """
        _, done = self.calls.do("spread", (str(new), *pauses), None, once=False, planned=old)
        return bool(done)


def _but_for_refusals(done: list[R], short: Sequence[str]) -> list[R]:
    """What became of each, if nothing was changed. Else raises ConfirmTimeout, which says so, too."""
    if all(each in REFUSALS for each in done):
        return done
    known = [each if each in REFUSALS else None for each in done]
    raise ConfirmTimeout(short[0], answers=known if any(each is not None for each in known) else (), done=done)


def _unconfirmed(short: Sequence[str], count: int) -> str:
    """Why what was done of so many may not last; nothing was done of none."""
    return short[0] if short and count else ""
