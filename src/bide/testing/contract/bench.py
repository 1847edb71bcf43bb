"""What the tests use: a bench, which is an engine with a time that only the test moves; and marks of what a test needs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

from msgspec.structs import replace

from bide.engines.aio import AsyncEngine
from bide.engines.base import (
    MAX_BATCH,
    Capabilities,
    Claim,
    Claimed,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Origin,
    Ref,
    Stored,
    Tended,
    Verdict,
)
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats

Test = TypeVar("Test", bound=Callable[..., object])

STATES: tuple[State, ...] = get_args(State)
START = 4_000_000_000_000  # in 2096, ahead of every clock: engine time never goes back
LEASE = 10_000
SLEEP = 60.0  # seconds, longer than any test runs: a wait that returns was woken
WAKE_TIMEOUT = 15.0  # seconds for a wake-up to arrive on a busy machine
MOMENT = 0.05  # seconds in which nothing should happen
PROMPT = 0.5  # seconds for a wake-up to arrive and be seen, unless the machine stood still
ROUNDS = 1_000  # an engine that asks for more calls than this has a bug


class Bench:
    """One engine in one namespace. All times are milliseconds, and a message is due at once unless told otherwise."""

    def __init__(self, engine: AsyncEngine, make_engine: Callable[..., AsyncEngine], now: int = START) -> None:
        self.engine = engine
        self.can: Capabilities = engine.capabilities
        self.now: int = now
        self._make_engine = make_engine
        self._others: list[Bench] = []
        self._asleep: list[asyncio.Task[None]] = []

    def move(self, ms: int) -> None:
        """Let this many milliseconds pass."""
        self.now += ms

    async def another(self, **settings: Any) -> "Bench":
        """Another open engine with the same messages, unless the settings name another namespace."""
        engine = self._make_engine(**settings)
        bench = Bench(engine, self._make_engine, self.now)
        self._others.append(bench)
        await engine.open()
        return bench

    async def close(self) -> None:
        for bench in self._others:
            await bench.close()
        await self.engine.close()
        for sleeper in self._asleep:
            sleeper.cancel()
        await asyncio.gather(*self._asleep, return_exceptions=True)

    async def put(self, topic: str, body: bytes = b"x", **options: Any) -> Sent:
        [sent] = await self.put_all(NewMessage(topic, body, **options))
        return sent

    async def put_all(self, *messages: NewMessage) -> list[Sent]:
        return await self.engine.put(messages, now=self.now)

    async def claim(self, *topics: str, limit: int = 1, lease: int = LEASE) -> list[Claimed]:
        return list((await self.look(*topics, limit=limit, lease=lease)).messages)

    async def claim_as(self, request: str, *topics: str, limit: int = 1) -> list[Claimed]:
        """A claim with a name."""
        return list((await self.engine.claim(topics, limit, LEASE, request=request, now=self.now)).messages)

    async def look(self, *topics: str, limit: int = 1, lease: int = LEASE) -> Claim:
        """A claim with its whole answer. Claims again while the engine says that there is more."""
        messages: list[Claimed] = []
        for _ in range(ROUNDS):
            claim = await self.engine.claim(topics, limit - len(messages), lease, now=self.now)
            messages += claim.messages
            if not claim.more or len(messages) >= limit:
                return replace(claim, messages=messages)
        raise AssertionError("claim asks for more without end")

    async def running(self, topic: str, body: bytes = b"x", *, lease: int = LEASE, **options: Any) -> Claimed:
        """Put a message and claim it. No other message of the topic may be due."""
        sent = await self.put(topic, body, **options)
        [claimed] = await self.claim(topic, limit=2, lease=lease)
        assert claimed.id == sent.id
        return claimed

    async def end(self, claimed: Claimed, verdict: Verdict, **options: Any) -> Ended:
        [ended] = await self.engine.settle([ending(claimed, verdict, **options)], now=self.now)
        return ended

    async def bury(self, topic: str, body: bytes = b"x", **options: Any) -> Claimed:
        """Put a message and bury it. No other message of the topic may be due."""
        claimed = await self.running(topic, body, **options)
        assert await self.end(claimed, "dead", error="no use") == "dead"
        return claimed

    async def extend(self, claimed: Claimed, lease: int) -> bool:
        [extended] = await self.engine.extend([Hold(claimed.topic, claimed.id, claimed.token)], lease, now=self.now)
        return extended

    async def cancel(self, **ref: str) -> CancelResult:
        """By `id=`, or by `topic=` and `key=`."""
        [result] = await self.engine.cancel([Ref(**ref)], now=self.now)
        return result

    async def reschedule(self, id: str, *, delay: int = 0, at: int | None = None, origin: Origin = "now") -> RescheduleResult:
        [result] = await self.engine.reschedule([Move(Ref(id=id), delay, at, origin)], now=self.now)
        return result

    async def get(self, **ref: str) -> Stored | None:
        """By `id=`, or by `topic=` and `key=`."""
        [stored] = await self.engine.get([Ref(**ref)], now=self.now)
        return stored

    async def find(self, **ref: str) -> Stored:
        """The same for a message that must be stored."""
        stored = await self.get(**ref)
        assert stored is not None
        return stored

    async def tend(self, budget: int = MAX_BATCH) -> Tended:
        """All upkeep that is due, added up."""
        total = Tended()
        for _ in range(ROUNDS):
            did = await self.engine.tend(budget, now=self.now)
            total += replace(did, more=False)
            if not did.more:
                return total
        raise AssertionError("tend asks for more without end")

    async def pages(self, topic: str, state: State | None = None, *, limit: int = 100) -> list[Sequence[Stored]]:
        pages: list[Sequence[Stored]] = []
        after: str | None = None
        for _ in range(ROUNDS):
            page = await self.engine.scan(topic, state, limit, after, now=self.now)
            if page.missing:  # a part that a busy machine has answer late
                continue
            pages.append(page.messages)
            after = page.after
            if after is None:
                return pages
        raise AssertionError("scan has pages without end")

    async def stored(self, topic: str, state: State | None = None, *, limit: int = 100) -> list[Stored]:
        return [each for page in await self.pages(topic, state, limit=limit) for each in page]

    async def sleeper(self, *topics: str) -> "asyncio.Task[None]":
        """A task that waits for these topics. Earlier messages don't wake it any more."""
        for _ in range(ROUNDS):
            sleeper = asyncio.create_task(self.engine.wait(topics, SLEEP))
            self._asleep.append(sleeper)
            woken, _asleep = await asyncio.wait({sleeper}, timeout=MOMENT)
            if not woken:
                return sleeper
            await sleeper
        raise AssertionError("wait does not wait")

    async def woken(self, *sleepers: "asyncio.Task[None]") -> list["asyncio.Task[None]"]:
        """Those that wake up: the first, and the others that were woken with it."""
        await asyncio.wait(sleepers, timeout=WAKE_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(sleepers, timeout=MOMENT)
        return [each for each in sleepers if each.done()]


def ending(claimed: Claimed, verdict: Verdict, **options: Any) -> End:
    return End(claimed.topic, claimed.id, claimed.token, verdict, **options)


def bodies(messages: Sequence[Claimed | Stored]) -> list[bytes]:
    return [each.body for each in messages]


def counts(stats: Stats) -> tuple[int, int, int, int]:
    """By state, as STATES has them."""
    return stats.scheduled, stats.ready, stats.leased, stats.dead


def needs(*capabilities: str) -> Callable[[Test], Test]:
    """A test for engines that have all of these capabilities."""
    return _marked("needs", capabilities)


def lacks(*capabilities: str) -> Callable[[Test], Test]:
    """A test for engines that have none of these capabilities."""
    return _marked("lacks", capabilities)


def marked(test: object, word: str) -> tuple[str, ...]:
    """The capabilities that a test is marked with by `needs` or `lacks`."""
    named: tuple[str, ...] = getattr(test, "__dict__", {}).get(word, ())
    return named


def fits(test: object, capabilities: Capabilities) -> bool:
    """Whether an engine with these capabilities must pass the test."""
    return all(getattr(capabilities, each) for each in marked(test, "needs")) and not any(
        getattr(capabilities, each) for each in marked(test, "lacks")
    )


def _marked(word: str, capabilities: tuple[str, ...]) -> Callable[[Test], Test]:
    def mark(test: Test) -> Test:
        test.__dict__[word] = capabilities
        return test

    return mark
