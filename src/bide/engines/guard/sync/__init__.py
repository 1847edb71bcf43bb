# Generated from ../aio.py by tools/unasync.py; change that file instead.
"""The guard of one engine: it checks each call, passes it on, and tells the hooks if there are any."""

from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from typing import Any, cast

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
from bide.engines.gates import Entered, Entry, Held, Left, Spend, Spent
from bide.engines.gates.sync import Gates
from bide.engines.guard import Rules
from bide.engines.guard.hooks import Hook, Hooks
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result
from bide.engines.results.sync import Results
from bide.engines.sync import Engine
from bide.errors import BadOption
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats


class Hooked:
    """Calls the verbs of an engine, its gates or its results, and tells hooks of every call."""

    def __init__(self, verbs: Engine | Gates | Results, hooks: Hooks) -> None:
        self._verbs = verbs
        self._hooks = hooks

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        call = getattr(self._verbs, verb)

        def told(*args: Any, **options: Any) -> Any:
            with self._hooks.call(verb, *args[:1]) as made:
                try:
                    made.answer = answer = call(*args, **options)
                finally:
                    del made  # its error will hold this frame
            return answer

        return told


class GuardedGates(Gates):
    """Stands before an engine's gates."""

    def __init__(self, engine: Engine, rules: Rules, hooks: Hooks | None) -> None:
        self._rules = rules
        self._engine = engine
        self.tell(hooks)

    def tell(self, hooks: Hooks | None) -> None:
        """Tell these of each call from now on."""
        engine = self._engine
        if engine.capabilities.gates:
            self._verbs = engine.gates if hooks is None else cast(Gates, Hooked(engine.gates, hooks))

    def part_of(self, gate: str) -> Hashable:
        return self._engine.gates.part_of(gate)

    def enter(self, entries: Sequence[Entry], *, now: int | None = None) -> list[Entered]:
        self._rules.check("gates", entries)
        return self._verbs.enter(entries, now=now)

    def keep(self, held: Sequence[Held], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        self._rules.check("gates", held)
        return self._verbs.keep(held, lease, brief=brief, now=now)

    def leave(self, held: Sequence[Held], *, now: int | None = None) -> Left:
        self._rules.check("gates", held)
        return self._verbs.leave(held, now=now)

    def spend(self, spends: Sequence[Spend], *, now: int | None = None) -> list[Spent]:
        self._rules.check("gates", spends)
        return self._verbs.spend(spends, now=now)


class GuardedResults(Results):
    """Stands before an engine's results."""

    def __init__(self, engine: Engine, rules: Rules, hooks: Hooks | None) -> None:
        self._rules = rules
        self._engine = engine
        self.tell(hooks)

    def tell(self, hooks: Hooks | None) -> None:
        """Tell these of each call from now on."""
        engine = self._engine
        if engine.capabilities.results:
            self._verbs = engine.results if hooks is None else cast(Results, Hooked(engine.results, hooks))

    def expect(
        self, expected: Sequence[Expected | Dependent], *, connection: object | None = None, now: int | None = None
    ) -> None:
        self._rules.check("results", expected, connection=connection)
        self._verbs.expect(expected, connection=connection, now=now)

    def fulfil(self, kept: Sequence[Kept], *, now: int | None = None) -> list[list[str]]:
        self._rules.check("results", kept)
        return self._verbs.fulfil(kept, now=now)

    def read(self, ids: Sequence[str], *, now: int | None = None) -> list[Result | None]:
        self._rules.check("results", ids)
        return self._verbs.read(ids, now=now)

    def follow(
        self, follows: Sequence[Follow], *, connection: object | None = None, now: int | None = None
    ) -> list[bool | None]:
        self._rules.check("results", follows, connection=connection)
        return self._verbs.follow(follows, connection=connection, now=now)

    def arrive(self, arrivals: Sequence[Arrival], *, now: int | None = None) -> list[bool]:
        self._rules.check("results", arrivals)
        return self._verbs.arrive(arrivals, now=now)


class Guard(Engine):
    """Stands before an engine: every call of every verb passes here, once. Without hooks it only checks."""

    def __init__(self, engine: Engine, shown: str, hooks: Sequence[Hook] = ()) -> None:
        self.capabilities: Capabilities = engine.capabilities
        self._engine = engine
        self._rules = Rules(engine.capabilities, shown)
        self._shown = shown
        self._hooks = hooks
        told = Hooks(hooks, shown) if hooks else None
        self._verbs = engine if told is None else cast(Engine, Hooked(engine, told))
        self.gates: GuardedGates = GuardedGates(engine, self._rules, told)
        self.results: GuardedResults = GuardedResults(engine, self._rules, told)

    def call_more(self, hooks: Sequence[Hook]) -> None:
        """From now on call these hooks, besides those that it was made with. Calls that are under way go on as they began."""
        all_of_them = [*self._hooks, *hooks]
        told = Hooks(all_of_them, self._shown) if all_of_them else None
        self._verbs = self._engine if told is None else cast(Engine, Hooked(self._engine, told))
        self.gates.tell(told)
        self.results.tell(told)

    def open(self) -> None:
        self._rules.check()
        self._verbs.open()
        self.capabilities = self._engine.capabilities  # an engine knows more of its place now

    def close(self) -> None:
        self._rules.closed = True
        self._verbs.close()

    def abandon(self) -> None:
        self._rules.closed = True
        self._engine.abandon()

    def part_of(self, item: NewMessage | Ref | End) -> Hashable:
        return self._engine.part_of(item)

    def ahead(self, ref: Ref) -> int:
        return self._engine.ahead(ref)

    def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        self._rules.check(None, messages, connection=connection)
        if not self._rules.takes_all:
            self._rules.check_messages(messages)
        if brief:  # only asked of an engine that has parts
            return self._verbs.put(messages, connection=connection, brief=True, now=now)
        return self._verbs.put(messages, connection=connection, now=now)

    def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        self._rules.check(limit=limit, topics=topics)
        return self._verbs.claim(topics, limit, lease, request=request, now=now)

    def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        self._rules.check(None, ends, connection=connection)
        return self._verbs.settle(ends, connection=connection, now=now)

    def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        self._rules.check("extend", holds)
        return self._verbs.extend(holds, lease, brief=brief, now=now)

    def cancel(
        self,
        refs: Sequence[Ref],
        *,
        seen: Sequence[Seen] | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[CancelResult]:
        self._rules.check_refs("cancel", refs, connection=connection)
        if seen is not None:
            self._rules.check_seen(refs, seen, self.capabilities.together)
        return self._verbs.cancel(refs, seen=seen, connection=connection, now=now)

    def reschedule(
        self,
        moves: Sequence[Move],
        *,
        condition: Condition | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[RescheduleResult]:
        self._rules.check_refs("cancel", [each.ref for each in moves], connection=connection)
        self._rules.check_moves(moves, condition, self.capabilities.together)
        return self._verbs.reschedule(moves, condition=condition, connection=connection, now=now)

    def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        self._rules.check(limit=budget)
        return self._verbs.tend(budget, ended_by=ended_by, now=now)

    def wait(self, topics: Sequence[str], timeout: float) -> None:
        self._rules.check(topics=topics)
        self._verbs.wait(topics, timeout)

    def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        self._rules.check_refs("lookup", refs)
        return self._verbs.get(refs, brief=brief, now=now)

    def scan(self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None) -> Scanned:
        self._rules.check_state(state, limit=limit)
        return self._verbs.scan(topic, state, limit, after, now=now)

    def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        self._rules.check("inspect" if window is None else "timeline")
        return self._verbs.stats(topic, but=but, window=window, now=now)

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
        self._rules.check("dead", ids or (), limit=limit)
        return self._verbs.requeue(topic, ids, delay=delay, over=over, limit=limit, now=now)

    def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        self._rules.check_state(state, ids or (), limit=limit)
        if state == "leased":
            raise BadOption("Leased messages can't be purged: they end with their lease. Purge scheduled, ready or dead.")
        if ids is not None and state != "dead":
            raise BadOption(f"Only dead letters can be purged by their ids, and state is {state!r}. Cancel pending messages.")
        return self._verbs.purge(topic, state, ids, limit=limit, now=now)

    def pause(self, topic: str, paused: bool) -> None:
        self._rules.check("pause")
        self._verbs.pause(topic, paused)
