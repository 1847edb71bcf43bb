"""The patience that the RabbitMQ engine's tests have: with it, the contract suite is content with an engine that is late."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, cast
from uuid import uuid4

import pytest
from msgspec.structs import replace

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Ended, Finding, NewMessage, Settings, Swept, Tended
from bide.engines.memory import CAPABILITIES, source
from bide.engines.registry import Source
from bide.engines.sync import Engine
from bide.testing.contract import EngineContract
from bide.testing.contract.bench import LEASE, START
from bide.types import Sent
from tests.rabbitmq.ledger import Ledger
from tests.rabbitmq.patient import patient

LACKS = ("cancel", "lookup", "keys", "idempotent", "inspect", "pause", "priority", "ordered", "instants")
ABLE = replace(CAPABILITIES, **dict.fromkeys(LACKS, False))
HIDDEN, HALF = 3, 1  # claims that a message is late by, and of them those that are told of one message only


class Late:
    """The memory engine, but what has come to a topic arrives a few claims later, and the first message before the others."""

    def __init__(self, engine: AsyncEngine, on_the_way: Counter[str]) -> None:
        self.capabilities = ABLE
        self._engine = engine
        self._on_the_way = on_the_way

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def put(self, messages: Sequence[NewMessage], **how: Any) -> list[Sent]:
        sent = await self._engine.put(messages, **how)
        self._late(*(each.topic for each in sent))
        return sent

    async def settle(self, ends: Sequence[End], **how: Any) -> list[Ended]:
        answers = await self._engine.settle(ends, **how)
        self._late(*(end.topic for end in ends if end.verdict == "retry" or end.delay))
        return answers

    async def requeue(self, topic: str, *asked: Any, **how: Any) -> Swept:
        self._late(topic)
        return await self._engine.requeue(topic, *asked, **how)

    async def tend(self, budget: int = MAX_BATCH, **how: Any) -> Tended:
        self._late(*self._on_the_way)
        return await self._engine.tend(budget, **how)

    async def claim(self, topics: Sequence[str], limit: int, lease: int, **how: Any) -> Claim:
        late = {each: self._on_the_way[each] for each in topics}
        self._on_the_way.update({each: -1 for each, claims in late.items() if claims})
        here = [each for each in topics if late[each] <= HALF]
        few = any(late[each] for each in here)
        return await self._engine.claim(here, 1 if few else limit, lease, **how)

    def _late(self, *topics: str) -> None:
        self._on_the_way |= dict.fromkeys(topics, HIDDEN)


class LateSource:
    capabilities = ABLE
    shown = "late://"

    def __init__(self, plain: Source, on_the_way: Counter[str]) -> None:
        self.namespace: str = plain.namespace
        self._plain = plain
        self._on_the_way = on_the_way

    def aio(self) -> AsyncEngine:
        return cast(AsyncEngine, Late(self._plain.aio(), self._on_the_way))

    def sync(self) -> Engine:
        raise NotImplementedError

    def examine(self) -> Sequence[Finding]:
        return []

    def mend(self) -> None:
        """There is nothing to mend."""


class TestLate(EngineContract):
    capabilities = ABLE
    colours = ("async",)

    @pytest.fixture
    def make_source(self) -> Callable[..., Source]:
        url = f"memory://{uuid4().hex}"
        on_the_way: defaultdict[str, Counter[str]] = defaultdict(Counter)

        def make(**settings: Any) -> Source:
            plain = source(Settings(url=url, **settings))
            return LateSource(plain, on_the_way[plain.namespace])

        return make

    @pytest.fixture
    def wrap(self) -> Callable[[AsyncEngine, str], AsyncEngine]:
        ledgers: defaultdict[str, Ledger] = defaultdict(Ledger)
        return lambda engine, namespace: patient(engine, ledgers[namespace], moment=0)


class Scripted:
    """Its claims give what a script says, and then nothing; what it is given back is noted."""

    capabilities = ABLE

    def __init__(self, *script: Sequence[Claimed]) -> None:
        self.script = list(script)
        self.claims = 0
        self.given_back: list[str] = []

    async def put(self, messages: Sequence[NewMessage], *, now: int) -> list[Sent]:
        return [Sent(each.body.decode(), each.topic, now + each.delay, "created") for each in messages]

    async def claim(self, topics: Sequence[str], limit: int, lease: int, **how: Any) -> Claim:
        self.claims += 1
        return Claim(self.script.pop(0) if self.script else [], START, None)

    async def settle(self, ends: Sequence[End], *, now: int) -> list[Ended]:
        assert {end.verdict for end in ends} == {"release"}
        self.given_back += [end.id for end in ends]
        return ["scheduled"] * len(ends)


def told(id: str, topic: str = "mail") -> Claimed:
    return Claimed(id, topic, id.encode(), {}, None, START, START, 1, 3, "1")


async def claim(engine: Scripted, *due: NewMessage, limit: int = 5, patience: float = 60, named: bool = False) -> list[str]:
    """The ids of what is claimed when these are due."""
    hasty = patient(cast(AsyncEngine, engine), Ledger(), moment=0.01, patience=patience)
    await hasty.put(due, now=START)
    found = await hasty.claim(["mail", "news"], limit, LEASE, request="r" if named else None, now=START)
    return [each.id for each in found.messages]


A, B, C = (NewMessage("mail", id) for id in (b"a", b"b", b"c"))
LATER = NewMessage("mail", b"later", delay=1)
NEWS = NewMessage("news", b"n")


@pytest.mark.asyncio
async def test_a_claim_waits_for_all_that_is_due_and_for_no_more() -> None:
    engine = Scripted([], [told("a")], [], [told("b")], [told("later")])
    assert await claim(engine, A, B, LATER) == ["a", "b"]
    assert engine.claims == 4


@pytest.mark.asyncio
async def test_a_claim_waits_for_no_more_than_its_limit() -> None:
    engine = Scripted([told("a")], [told("b")])
    assert await claim(engine, A, B, limit=1) == ["a"]


@pytest.mark.asyncio
async def test_what_comes_although_it_is_not_due_is_seen() -> None:
    assert await claim(Scripted([], [told("later")]), LATER) == ["later"]
    assert await claim(Scripted([told("a")], [], [told("a")]), A) == ["a"]


@pytest.mark.asyncio
async def test_a_claim_gives_up() -> None:
    assert await claim(Scripted([told("a")]), A, B, patience=0.1) == ["a"]
    assert await claim(Scripted()) == []


@pytest.mark.asyncio
async def test_a_claim_with_a_name_takes_all_of_its_messages_at_once() -> None:
    engine = Scripted([told("a")], [told("a"), told("b")])
    assert await claim(engine, A, B, named=True) == ["a", "b"]
    assert engine.given_back == ["a"]


@pytest.mark.asyncio
async def test_a_topic_whose_messages_came_first_takes_no_place_of_another() -> None:
    engine = Scripted([told("a"), told("b")], [told("a"), told("n", "news")])
    assert await claim(engine, A, B, C, NEWS, limit=2) == ["a", "n"]
    assert engine.given_back == ["a", "b"]
