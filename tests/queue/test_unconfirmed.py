"""Batches of more than 1,000 of which a part was done but not confirmed: the rest is done too, and the error is true of all."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bide import AsyncQueue, CancelResult, ConfirmTimeout, OutcomeUnknown, Queue, Unavailable
from bide.engines.base import NewMessage
from bide.queue.deliveries import internals
from tests.queue.conftest import Awaited

COUNT = 2_500
AWAY = Unavailable("it is away")


@pytest.fixture(params=[AsyncQueue, Queue], ids=["async", "sync"])
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    made = request.param("memory://")
    yield made if request.param is AsyncQueue else Awaited(made)
    closed = made.close()
    if closed is not None:
        await closed


async def be_short(queue: Any, verb: str, *parts: bool | Exception) -> None:
    """For the next parts: True is not confirmed, an error is not done, and False is confirmed, as are all later ones."""
    session = getattr(queue, "inner", queue).session
    engine = session.engine()
    if isinstance(queue, AsyncQueue):
        engine = await engine
    call, left = getattr(engine, verb), list(parts)

    def begin(batch: Sequence[Any]) -> tuple[bool, list[Any]]:
        short = left.pop(0) if left else False
        if isinstance(short, Exception):
            raise short
        if short and verb == "put":
            batch = [replace(new, operation=new.operation or f"own-{len(left)}#{i}") for i, new in enumerate(batch)]
        return short, list(batch)

    def end(batch: Sequence[Any]) -> ConfirmTimeout:
        named = [new.operation or "" for new in batch if isinstance(new, NewMessage)]
        return ConfirmTimeout("0 of 1 replicas had it in time", operations=named)

    async def shortly(batch: Sequence[Any], **options: Any) -> Any:
        short, batch = begin(batch)
        answers = await call(batch, **options)
        if short:
            raise end(batch)
        return answers

    def shortly_too(batch: Sequence[Any], **options: Any) -> Any:
        short, batch = begin(batch)
        answers = call(batch, **options)
        if short:
            raise end(batch)
        return answers

    setattr(engine, verb, shortly if isinstance(queue, AsyncQueue) else shortly_too)


async def send_again(queue: Any, operations: Sequence[str]) -> None:
    """As the error says it: each message under its operation, but those that were accepted."""
    for body, operation in enumerate(operations):
        if operation:
            await queue.send("t", body, operation=operation)


async def bodies(queue: Any) -> list[Any]:
    found: list[Any] = []
    while batch := await queue.receive("t", limit=1_000):
        found += [each.body for each in batch]
    return found


@pytest.mark.parametrize("how", [{}, {"operation": "mine"}])
async def test_all_are_sent_and_can_be_sent_again(queue: Any, how: dict[str, str]) -> None:
    await be_short(queue, "put", True, False, True)
    with pytest.raises(ConfirmTimeout, match=r"All 2,500 were done, but 1,500 of them not confirmed: 0 of 1 replicas") as short:
        await queue.send_many("t", range(COUNT), **how)
    assert (await queue.stats("t")).ready == COUNT
    operations, answers = short.value.operations, short.value.answers
    assert [answer is None for answer in answers] == [True] * 1_000 + [False] * 1_000 + [True] * 500
    assert len(operations) == COUNT
    assert [operation == "" for operation in operations] == [answer is not None for answer in answers]
    await send_again(queue, operations)
    assert sorted(await bodies(queue)) == list(range(COUNT))


async def test_a_part_that_fails_after_one_that_was_not_confirmed(queue: Any) -> None:
    await be_short(queue, "put", True, AWAY)
    with pytest.raises(
        OutcomeUnknown, match="1,000 of 2,500 were done, 1,000 of them not confirmed, then: it is away"
    ) as unknown:
        await queue.send_many("t", range(COUNT))
    assert not isinstance(unknown.value, ConfirmTimeout)
    assert unknown.value.answers == [None] * COUNT
    assert (await queue.stats("t")).ready == 1_000
    await send_again(queue, unknown.value.operations)
    assert sorted(await bodies(queue)) == list(range(COUNT))


async def test_a_first_part_of_which_nothing_is_known(queue: Any) -> None:
    """All can be sent again, also what was not tried."""
    named = [f"first#{i}" for i in range(1_000)]
    await be_short(queue, "put", OutcomeUnknown("no answer", operations=named, answers=[None] * 1_000))
    with pytest.raises(OutcomeUnknown, match=r"^no answer$") as unknown:
        await queue.send_many("t", range(COUNT))
    assert unknown.value.operations[:1_000] == named
    assert unknown.value.answers == [None] * COUNT
    await send_again(queue, unknown.value.operations)
    assert sorted(await bodies(queue)) == list(range(COUNT))


@pytest.mark.parametrize("wait", [None, 10])
async def test_they_take_the_room_that_they_need(queue: Any, wait: int | None) -> None:
    getattr(queue, "inner", queue).topic("t", most_pending=COUNT)
    await be_short(queue, "put", True)
    with pytest.raises(ConfirmTimeout):
        await queue.send_many("t", range(COUNT), wait=wait)
    assert (await queue.stats("t")).ready == COUNT


async def test_all_are_cancelled(queue: Any) -> None:
    sent = await queue.send_many("t", range(COUNT), operation="once")
    await be_short(queue, "cancel", True, True, False)
    with pytest.raises(ConfirmTimeout, match="2,000 of them not confirmed") as short:
        await queue.cancel_many(sent)
    assert (await queue.stats("t")).pending == 0
    assert (short.value.operations, len(short.value.answers)) == ([], COUNT)
    assert {each and each.value for each in short.value.answers} == {None, "cancelled"}


async def test_no_more_are_cancelled_than_is_said(queue: Any) -> None:
    sent = await queue.send_many("t", range(COUNT))
    await be_short(queue, "cancel", True, AWAY)
    with pytest.raises(OutcomeUnknown, match="1,000 of 2,500") as unknown:
        await queue.cancel_many(sent)
    assert not isinstance(unknown.value, ConfirmTimeout)
    assert (await queue.stats("t")).pending == COUNT - 1_000
    await be_short(queue, "cancel", AWAY)
    with pytest.raises(Unavailable):  # where nothing is unconfirmed, an error stays what it is
        await queue.cancel_many(sent)


async def held_by(queue: Any) -> list[Any]:
    await queue.send_many("t", range(COUNT))
    return [each for _ in range(3) for each in await queue.receive("t", limit=1_000)]


@pytest.mark.parametrize("verb", ["ack_many", "retry_many"])
async def test_all_are_ended(queue: Any, verb: str) -> None:
    held = await held_by(queue)
    await be_short(queue, "settle", True, False, True)
    with pytest.raises(ConfirmTimeout, match="All 2,500 were done, but 1,500 of them not confirmed") as short:
        await getattr(queue, verb)(held)
    assert (await queue.stats("t")).leased == 0
    assert short.value.answers == [None] * 1_000 + [True] * 1_000 + [None] * 500
    assert all(internals(each).ended for each in held)


@pytest.mark.parametrize("verb", ["ack_many", "retry_many"])
async def test_those_are_ended_of_which_it_is_known(queue: Any, verb: str) -> None:
    held = await held_by(queue)
    answered = ["done"] * 400 + ["lost"] * 100 + [None] * 500
    await be_short(queue, "settle", True, OutcomeUnknown("one shard is away", answers=answered))
    with pytest.raises(OutcomeUnknown, match="one shard is away") as unknown:
        await getattr(queue, verb)(held)
    assert unknown.value.answers == [None] * 1_000 + [True] * 400 + [False] * 100 + [None] * 1_000
    assert [internals(each).ended for each in held] == [True] * 1_500 + [False] * 1_000
    left = await getattr(queue, verb)(held[1_500:])
    assert left == [True] * 1_000


async def test_what_was_cancelled_before_the_engine_went_away_is_told(queue: Any) -> None:
    sent = await queue.send_many("t", range(COUNT))
    await be_short(queue, "cancel", False, AWAY)
    with pytest.raises(OutcomeUnknown, match=r"^1,000 of 2,500 were done, then: it is away$") as unknown:
        await queue.cancel_many(sent)
    assert unknown.value.answers == [CancelResult.CANCELLED] * 1_000 + [None] * 1_500
    assert (await queue.stats("t")).pending == 1_500
    await be_short(queue, "cancel", AWAY)
    with pytest.raises(Unavailable):
        await queue.cancel_many(sent[1_000:])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AWAY, r"Some of the batch were done\. Of the others: it is away$"),
        (OutcomeUnknown("one shard is away", answers=[CancelResult.CANCELLED, None]), "one shard is away$"),
    ],
)
async def test_what_was_cancelled_before_others_were_taken_back_is_told(queue: Any, error: Any, told: str) -> None:
    sent = await queue.send_many("t", range(4))
    running = await queue.receive("t", limit=2)
    await be_short(queue, "cancel", False, error)
    await take_back_at_once(queue)
    with pytest.raises(OutcomeUnknown, match=told) as unknown:
        await queue.cancel_many([sent[2], *(each.id for each in running), sent[3]])
    again = error.answers if isinstance(error, OutcomeUnknown) else [None, None]
    assert unknown.value.answers == [CancelResult.CANCELLED, *again, CancelResult.CANCELLED]


async def test_what_is_not_confirmed_of_those_taken_back_is_told_beside_the_others(queue: Any) -> None:
    sent = await queue.send_many("t", range(4))
    running = await queue.receive("t", limit=2)
    await be_short(queue, "cancel", False, True)
    await take_back_at_once(queue)
    with pytest.raises(ConfirmTimeout, match="All 4 were done, but 2 of them not confirmed") as short:
        await queue.cancel_many([sent[2], *(each.id for each in running), sent[3]])
    assert short.value.answers == [CancelResult.CANCELLED, None, None, CancelResult.CANCELLED]


async def take_back_at_once(queue: Any) -> None:
    """As if leases had ended meanwhile."""
    opened = getattr(queue, "inner", queue).session.open()
    receiver = (await opened if isinstance(queue, AsyncQueue) else opened).receiver

    async def take_back() -> bool:
        return True

    receiver.take_back = take_back if isinstance(queue, AsyncQueue) else lambda: True
