# Generated from aio.py by tools/unasync.py; change that file instead.
"""The guard of one engine: each verb is checked, told to the hooks where there are any, and passed on."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from bide.engines.base import (
    MAX_BATCH,
    Capabilities,
    Claim,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Ref,
    Scanned,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.engines.guard.hooks import Hook, Listeners
from bide.engines.guard.rules import Rules
from bide.engines.sync import Engine
from bide.errors import BadOption
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats

T = TypeVar("T")


class Guard(Engine):
    def __init__(self, engine: Engine, shown: str, hooks: Sequence[Hook] = ()) -> None:
        self.capabilities: Capabilities = engine.capabilities
        self._engine = engine
        self._rules = Rules(engine.capabilities, shown)
        self._listeners = Listeners(hooks, shown) if hooks else None

    def open(self) -> None:
        self._rules.check()
        self._pass("open", (), self._engine.open)

    def close(self) -> None:
        self._rules.closed = True
        self._pass("close", (), self._engine.close)

    def _abandon(self) -> None:
        self._rules.closed = True
        self._engine._abandon()

    def put(self, messages: Sequence[NewMessage], *, connection: object | None = None, now: int | None = None) -> list[Sent]:
        self._rules.check(None, messages, connection=connection)
        if not self._rules.takes_all:
            self._rules.check_messages(messages)
        return self._pass("put", messages, partial(self._engine.put, messages, connection=connection, now=now))

    def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        self._rules.check_topics(topics, limit)
        return self._pass("claim", (), partial(self._engine.claim, topics, limit, lease, request=request, now=now), topics)

    def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        self._rules.check(None, ends, connection=connection)
        return self._pass("settle", ends, partial(self._engine.settle, ends, connection=connection, now=now))

    def extend(self, holds: Sequence[Hold], lease: int, *, now: int | None = None) -> list[bool]:
        self._rules.check("extend", holds)
        return self._pass("extend", holds, partial(self._engine.extend, holds, lease, now=now))

    def cancel(self, refs: Sequence[Ref], *, connection: object | None = None, now: int | None = None) -> list[CancelResult]:
        self._rules.check_refs("cancel", refs, connection=connection)
        return self._pass("cancel", refs, partial(self._engine.cancel, refs, connection=connection, now=now), ())

    def reschedule(
        self, moves: Sequence[Move], *, connection: object | None = None, now: int | None = None
    ) -> list[RescheduleResult]:
        self._rules.check_refs("cancel", [each.ref for each in moves], connection=connection)
        return self._pass("reschedule", moves, partial(self._engine.reschedule, moves, connection=connection, now=now), ())

    def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        self._rules.check(limit=budget)
        return self._pass("tend", (), partial(self._engine.tend, budget, ended_by=ended_by, now=now))

    def wait(self, topics: Sequence[str], timeout: float) -> None:
        self._rules.check_topics(topics)
        self._pass("wait", (), partial(self._engine.wait, topics, timeout), topics)

    def get(self, refs: Sequence[Ref], *, now: int | None = None) -> list[Stored | None]:
        self._rules.check_refs("lookup", refs)
        return self._pass("get", refs, partial(self._engine.get, refs, now=now), ())

    def scan(self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None) -> Scanned:
        self._rules.check("inspect", limit=limit)
        return self._pass("scan", (), partial(self._engine.scan, topic, state, limit, after, now=now), [topic])

    def stats(self, topic: str | None = None, *, window: Window | None = None, now: int | None = None) -> Stats:
        self._rules.check("inspect")
        return self._pass(
            "stats", (), partial(self._engine.stats, topic, window=window, now=now), [] if topic is None else [topic]
        )

    def requeue(
        self, topic: str, ids: Sequence[str] | None = None, *, delay: int = 0, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        self._rules.check("inspect", ids or (), limit=limit)
        return self._pass("requeue", (), partial(self._engine.requeue, topic, ids, delay=delay, limit=limit, now=now), [topic])

    def purge(self, topic: str, state: State, *, limit: int = MAX_BATCH, now: int | None = None) -> Swept:
        self._rules.check("inspect", limit=limit)
        if state == "leased":
            raise BadOption("Leased messages can't be purged: they end with their lease. Purge scheduled, ready or dead.")
        return self._pass("purge", (), partial(self._engine.purge, topic, state, limit=limit, now=now), [topic])

    def pause(self, topic: str, paused: bool) -> None:
        self._rules.check("pause")
        self._pass("pause", (), partial(self._engine.pause, topic, paused), [topic])

    def _pass(self, verb: str, asked: Sequence[Any], call: Callable[[], T], topics: Sequence[str] | None = None) -> T:
        """Make a call. Its topics are those of what was asked, unless they are given."""
        return call() if self._listeners is None else self._told(self._listeners, verb, asked, call, topics)

    def _told(
        self,
        listeners: Listeners,
        verb: str,
        asked: Sequence[Any],
        call: Callable[[], T],
        topics: Sequence[str] | None,
    ) -> T:
        named = sorted({each.topic for each in asked}) if topics is None else topics
        with listeners.call(verb, named, asked) as told:
            told.answer = answer = call()
        return answer
