"""What counts as an attempt: what was begun and whose end nobody has told. What only passed through a process does not."""

import asyncio
from collections.abc import Sequence

import pytest

from bide.engines.base import Claimed, End, NewMessage, Verdict
from bide.engines.rabbitmq import holdings
from bide.engines.rabbitmq.aio import inbox
from bide.engines.rabbitmq.aio.engine import AsyncRabbit
from bide.errors import Unavailable
from tests.rabbitmq.conftest import New
from tests.worker.conftest import once

LEASE = 600_000
PATIENCE = 20.0  # seconds


def end(each: Claimed, verdict: Verdict) -> End:
    return End(each.topic, each.id, each.token, verdict)


def messages(count: int, **options: object) -> list[NewMessage]:
    return [NewMessage("mail", str(n).encode(), **options) for n in range(count)]  # type: ignore[arg-type]


async def claimed(engine: AsyncRabbit, count: int, topics: Sequence[str] = ("mail",)) -> list[Claimed]:
    found: list[Claimed] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += (await engine.claim(topics, count - len(found), LEASE)).messages
            if len(found) < count:
                await engine.wait(topics, 1.0)
    return found


async def left_behind(engine: AsyncRabbit) -> None:
    """Its process is killed."""
    engine.abandon()
    await once(lambda: engine._endings.line.opened is None)


async def test_an_engine_that_is_closed_gives_back_what_nobody_has_claimed_and_no_attempt_counts(new: New) -> None:
    sender, one = await new(apart=True), await new(apart=True)
    await sender.put(messages(30, max_attempts=1))
    held = await claimed(one, 10)
    await one._inbox.receive(["mail"], 15)  # which nobody claims
    await once(lambda: len(one._inbox._here["mail"]) == 15)
    await one.settle([end(each, "release") for each in held])
    await one.close()
    again = await claimed(await new(apart=True), 30)
    assert {each.attempt for each in again} == {1}
    assert sorted(int(each.body) for each in again) == list(range(30))


async def test_a_connection_that_is_lost_is_no_fault_of_the_messages(new: New) -> None:
    engine = await new()
    await engine.put(messages(5, max_attempts=1))
    for _ in range(3):
        held = await claimed(engine, 5)
        assert {each.attempt for each in held} == {1}
        await engine._endings.line.drop()


async def test_what_a_dead_process_held_was_an_attempt_and_is_back_at_once(new: New) -> None:
    one, two = await new(apart=True), await new(apart=True)
    await one.put(messages(5))
    await claimed(one, 5)
    await left_behind(one)
    assert {each.attempt for each in await claimed(two, 5)} == {2}


async def test_messages_that_were_lost_twice_come_back_one_by_one(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "APART", 50)
    sender = await new(apart=True)
    await sender.put(messages(8))
    for _ in range(2):
        engine = await new(apart=True)
        await claimed(engine, 8)
        await left_behind(engine)
    # Then each is handed out when no other one is held, and the others wait elsewhere
    last, seen = await new(apart=True), set[str]()
    while len(seen) < 8:
        [alone] = await claimed(last, 1)
        await once(lambda: not any(last._inbox._here.values()))
        assert (await last.claim(["mail"], 8, LEASE)).messages == []
        assert alone.attempt == 3
        seen.add(alone.id)
        assert await last.settle([end(alone, "done")]) == ["done"]


async def test_a_retry_ends_the_suspicion(new: New) -> None:
    sender = await new(apart=True)
    await sender.put(messages(2, max_attempts=9))
    for _ in range(2):
        engine = await new(apart=True)
        await claimed(engine, 2)
        await left_behind(engine)
    last = await new(apart=True)
    [alone] = await claimed(last, 1)
    await last.settle([end(alone, "retry")])
    assert sorted(each.attempt for each in await claimed(last, 2)) == [3, 4]


async def test_a_slot_that_is_free_takes_one_message_of_many_topics(new: New) -> None:
    topics = [f"mail{n}" for n in range(12)]
    sender, engine = await new(apart=True), await new(apart=True)
    await sender.put([NewMessage(topic, b"x") for topic in topics for _ in range(3)])
    for turn in range(1, 13):
        await claimed(engine, 1, topics)
        assert sum(engine._inbox._used().values()) <= turn
        assert not any(engine._inbox._here.values())


async def test_who_takes_ten_and_works_on_them_one_by_one_gets_all_in_their_order(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "QUIET", -1.0)  # each has taken long
    engine, order = await new(), list[int]()
    await engine.put(messages(60))
    while len(order) < 60:
        for each in await claimed(engine, 10):
            order.append(int(each.body))
            await engine.settle([end(each, "done")])
            assert not any(engine._inbox._here.values())
    assert order == list(range(60))


async def test_an_ack_ends_the_receiving_only_if_nothing_can_be_on_its_way(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "QUIET", -1.0)
    engine = await new(apart=True)
    await engine.put(messages(3))
    # When there is room for one more
    first, second, third = await claimed(engine, 3)
    await engine._inbox.receive(["mail"], 1, patient=False)
    assert await engine.settle([end(first, "done")]) == ["done"]
    assert engine._inbox._sources["mail"].free(engine._inbox._used()) == 1
    # When it is full
    await engine.put(messages(1))
    await once(lambda: len(engine._inbox._here["mail"]) == 1)
    [fourth] = await claimed(engine, 1)
    assert await engine.settle([end(each, "done") for each in (second, third, fourth)]) == ["done"] * 3
    assert "mail" not in engine._inbox._sources


async def test_an_ack_waits_until_its_consumer_has_ended(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "QUIET", -1.0)
    engine, begun = await new(), asyncio.Event()
    await engine.put(messages(3))
    first, second = await claimed(engine, 2)
    channel = engine._endings.line.opened
    assert channel is not None
    cancel = channel.basic_cancel

    async def slowly(*args: object, **options: object) -> None:
        begun.set()
        await asyncio.sleep(0.1)
        await cancel(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(channel, "basic_cancel", slowly)
    ending = asyncio.create_task(engine.settle([end(first, "done")]))
    await begun.wait()
    assert await engine.settle([end(second, "done")]) == ["done"]
    assert await ending == ["done"]
    assert not any(engine._inbox._here.values())


async def test_an_ack_ends_no_receiving_that_somebody_began_to_wait_for(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await new()
    await engine.put(messages(1))
    [first] = await claimed(engine, 1)
    await asyncio.sleep(2 * inbox.QUIET)

    async def come() -> None:
        while not engine._inbox._here.get("mail"):
            await engine.wait(["mail"], PATIENCE)

    async with engine._inbox._consumers._lock:  # another topic is about to be received
        ending = asyncio.create_task(engine.settle([end(first, "done")]))
        await once(lambda: first.id not in engine._holdings)
        waiting = asyncio.create_task(come())
        await once(lambda: "mail" in engine._inbox._sleepers.topics())
    assert await ending == ["done"]
    await engine.put(messages(1))
    async with asyncio.timeout(2.0):
        await waiting


async def test_receiving_that_is_about_to_begin_when_the_engine_is_closed_begins_no_more(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, one, counted = await new(apart=True), await new(apart=True), asyncio.Event()
    await sender.put(messages(20, max_attempts=1))
    count = one._topics.count

    async def slowly(topic: str) -> int:
        found = await count(topic)
        counted.set()
        await asyncio.sleep(0.2)
        return found

    monkeypatch.setattr(one._topics, "count", slowly)
    receiving = asyncio.create_task(one._inbox.receive(["mail"], 5))
    await counted.wait()
    await one.close()
    with pytest.raises(Unavailable):
        await receiving
    again = await claimed(await new(apart=True), 20)
    assert {each.attempt for each in again} == {1}
    assert len({each.id for each in again}) == 20


async def test_an_engine_whose_closing_is_cancelled_gives_back_what_nobody_has_claimed_once(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, one, asked = await new(apart=True), await new(apart=True), asyncio.Event()
    await sender.put(messages(20, max_attempts=1))
    await one._inbox.receive(["mail"], 20)
    await once(lambda: len(one._inbox._here["mail"]) == 20)
    channel = one._endings.line.opened
    assert channel is not None
    flow = channel.flow

    async def ask(*args: object, **options: object) -> None:
        asyncio.get_running_loop().call_later(0.0002, asked.set)
        await flow(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(channel, "flow", ask)
    closing = asyncio.create_task(one.close())
    await asked.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await one.close()
    other = await new(apart=True)
    again = await claimed(other, 20)
    assert {each.attempt for each in again} == {1}
    assert len({each.id for each in again}) == 20
    await asyncio.sleep(0.5)  # for copies, which there must not be
    assert not (await other.claim(["mail"], 20, LEASE)).messages
    assert not (await sender.scan("mail", "dead", 100)).messages


async def test_what_nobody_asks_for_is_given_back_when_its_consumer_has_ended(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, one, answered, before = await new(apart=True), await new(apart=True), list[str](), list[list[str]]()
    await sender.put(messages(6, max_attempts=1))
    await one._inbox.receive(["mail"], 10)
    channel = one._endings.line.opened
    assert channel is not None
    cancel, flow, give_back = channel.basic_cancel, channel.flow, one._endings.send_round

    async def end(*args: object, **options: object) -> None:
        await cancel(*args, **options)  # type: ignore[call-overload]
        answered.append("sent")

    async def ask(*args: object, **options: object) -> None:
        await flow(*args, **options)  # type: ignore[arg-type]
        answered.append("ended")

    async def notice(*args: object) -> None:
        before.append(answered.copy())
        await give_back(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(channel, "basic_cancel", end)
    monkeypatch.setattr(channel, "flow", ask)
    monkeypatch.setattr(one._endings, "send_round", notice)
    await once(lambda: bool(before))
    assert before == [["sent", "ended"]]
    again = await claimed(await new(apart=True), 6)
    assert {each.attempt for each in again} == {1}


async def test_what_nobody_asks_for_is_received_until_it_is_full_or_quiet(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, one, free = await new(apart=True), await new(apart=True), list[int]()
    ending = one._inbox._consumers.end

    async def notice(topic: str) -> None:
        free.append(one._inbox._sources[topic].free(one._inbox._used()))
        await ending(topic)

    monkeypatch.setattr(one._inbox._consumers, "end", notice)
    monkeypatch.setattr(inbox, "FILLING", PATIENCE)
    await one._inbox.receive(["mail"], 40, patient=False)
    while not free:  # more than one a second
        await sender.put(messages(1, max_attempts=1))
        await asyncio.sleep(0.05)
    await one.close()
    assert free == [0]
    again = await claimed(await new(apart=True), 40)
    assert {each.attempt for each in again} == {1}
