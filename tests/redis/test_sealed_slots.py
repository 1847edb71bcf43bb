"""Messages come, move and go while the slots that hold them open: none is lost, none comes twice, none at a wrong time."""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from bide.engines.base import NewMessage, Ref
from bide.engines.redis.protocol.encoding import name_of
from bide.testing.contract.bench import START, Bench
from bide.types import CancelResult, RescheduleResult
from tests.redis.keyspace import COLOURS, bench_at, counts_are_true, finish_all, names, put_many, take_all
from tests.servers.redis import RedisServer

FINE, MIDDLE, COARSE = 65_536, 4_194_304, 134_217_728
CALENDARS = {"coarse": COARSE, "middle": MIDDLE, "fine": FINE}
SORTS = ("coarse", "middle", "fine", "seconds", "moments", "instants", "near", "ready")
BEGIN = (START // COARSE + 1) * COARSE  # all three calendars begin a slot here
YEAR = 31_557_600_000


def home(id: str) -> str:
    """The sort of place that a message was born in."""
    return SORTS[(name_of(id).local[0] - ord("A")) % 8]


def place(id: str) -> str:
    """An id without its salt."""
    name = name_of(id)
    return f"{name.shard} {name.topic} {name.local.hex()}"


async def put_at(bench: Bench, topic: str, dues: Sequence[int]) -> dict[str, int]:
    """The messages' ids, and when each is due."""
    found: dict[str, int] = {}
    for i in range(0, len(dues), 1_000):
        some = dues[i : i + 1_000]
        for sent, due in zip(await bench.put_all(*[NewMessage(topic, b"x", at=at) for at in some]), some, strict=True):
            assert sent.id not in found
            assert sent.due == max(due, bench.now)
            found[sent.id] = sent.due
    return found


async def come_out_on_time(bench: Bench, topic: str, dues: dict[str, int], steps: int = 60) -> None:
    """At instants all over the time ahead, what has come out is what was due: each once."""
    left = dict(dues)
    ahead = sorted(set(left.values()))
    marks = sorted({*ahead[:: max(1, len(ahead) // steps)], *(due - 1 for due in ahead[:: max(1, len(ahead) // 7)]), ahead[-1]})
    for mark in marks:
        bench.now = max(bench.now, mark)
        got = await take_all(bench, topic)
        ids = [each.id for each in got]
        assert len(set(ids)) == len(ids), "one came twice in a claim"
        assert set(ids) <= set(left), "one came twice, or was never sent"
        assert set(ids) == {id for id, due in left.items() if due <= bench.now}, f"at {mark - BEGIN}"
        assert all(each.due == left[each.id] for each in got)
        for id in ids:
            del left[id]
        await finish_all(bench, got)
    assert not left
    assert not await bench.stored(topic)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("colour", COLOURS)
async def test_newcomers_of_a_slot_that_is_half_taken_out_are_neither_lost_nor_doubled(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    draw = random.Random(1)
    async with bench_at(redis_url, colour, now=BEGIN - COARSE) as bench:
        dues = await put_at(bench, "t", [BEGIN + draw.randrange(FINE) for _ in range(26_000)])
        assert {home(id) for id in dues} == {"coarse", "middle", "fine", "seconds"}
        bench.now = BEGIN + FINE // 2
        taken: list[str] = []
        half = 0
        for _ in range(40):
            claim = await bench.engine.claim(["t"], 150, 10_000_000, now=bench.now)
            taken += [each.id for each in claim.messages]
            with redis_server.client() as client:
                half += any(":o" in name for name in names(client))
            dues |= await put_at(bench, "t", [BEGIN + draw.randrange(FINE) for _ in range(25)])
            bench.move(50)
        assert half > 5, "a claim stopped in the middle of a slot"
        bench.now = BEGIN + FINE
        taken += [each.id for each in await take_all(bench, "t", lease=10_000_000)]
        assert len(taken) == len(set(taken))
        assert set(taken) == set(dues)
        assert len({place(id) for id in dues}) == len(dues)
        await counts_are_true(bench, ["t"])


@pytest.mark.parametrize("colour", COLOURS)
async def test_no_place_is_given_twice_while_topics_come_and_go(redis_url: str, colour: str) -> None:
    seen: set[str] = set()
    async with bench_at(redis_url, colour) as bench:
        for turn in range(40):
            topic = f"t{turn % 3}"
            spans = (0, 0, 5, 70_000, 5_000_000, 200_000_000)
            sent = await bench.put_all(*[NewMessage(topic, b"x", delay=span) for span in spans])
            places = {place(each.id) for each in sent}
            assert len(places) == len(spans)
            assert not places & seen
            seen |= places
            if turn % 2:
                assert set(await bench.engine.cancel([Ref(id=each.id) for each in sent], now=bench.now)) == {
                    CancelResult.CANCELLED
                }
            else:
                bench.move(200_000_001 if turn % 4 else 80_000)
                await finish_all(bench, await take_all(bench, topic))


async def test_what_a_coarse_slot_has_no_room_for_comes_out_of_finer_ones_on_time(redis_url: str) -> None:
    draw = random.Random(2)
    async with bench_at(redis_url, now=BEGIN - COARSE) as bench:
        dues = await put_at(bench, "t", [BEGIN + draw.randrange(COARSE) for _ in range(2_000)])
        homes = [home(id) for id in dues]
        assert homes.count("coarse") >= 512
        assert homes.count("middle") > 1_000, "the coarse slot is full"
        await come_out_on_time(bench, "t", dues)


async def test_what_a_middle_slot_has_no_room_for_comes_out_of_finer_ones_on_time(redis_url: str) -> None:
    draw = random.Random(3)
    async with bench_at(redis_url, now=BEGIN - COARSE) as bench:
        dues = await put_at(bench, "t", [BEGIN + draw.randrange(MIDDLE) for _ in range(3_000)])
        homes = [home(id) for id in dues]
        assert homes.count("fine") > 1_000
        await come_out_on_time(bench, "t", dues)


@pytest.mark.parametrize("calendar", CALENDARS)
async def test_messages_come_on_time_out_of_a_slot_that_was_opened_before_its_first_is_due(
    redis_url: str, calendar: str
) -> None:
    """Some of them are put when its slot is open, and so is the one behind."""
    length = CALENDARS[calendar]
    draw = random.Random(4)
    async with bench_at(redis_url, now=BEGIN - COARSE) as bench:
        await crowded(bench, calendar)
        dues = await put_at(bench, "t", [BEGIN + length // 2 + draw.randrange(length) for _ in range(200)])
        bench.now = BEGIN + 10
        assert not await take_all(bench, "t")
        dues |= await put_at(bench, "t", [bench.now + draw.randrange(2 * length) for _ in range(200)])
        await come_out_on_time(bench, "t", dues | await others(bench, list(dues)))


async def crowded(bench: Bench, calendar: str) -> None:
    """Leave no room in the coarser slots that begin at BEGIN; the messages are put and cancelled again."""
    count = {"coarse": 0, "middle": 512, "fine": 1_024}[calendar]
    if not count:
        return
    ids = await put_many(bench, "t", 512, at=BEGIN + 1)
    if calendar == "fine":
        ids += await put_many(bench, "t", 512, at=BEGIN + 1)
    await put_many(bench, "t", 1, at=BEGIN + 60 * YEAR)  # so that the topic does not go
    assert set(await bench.engine.cancel([Ref(id=id) for id in ids[:1_000]], now=bench.now)) == {CancelResult.CANCELLED}
    await bench.engine.cancel([Ref(id=id) for id in ids[1_000:]], now=bench.now)


async def taken_now(bench: Bench, id: str) -> Any:
    """The message of an unopened slot, handed out before its time."""
    assert await bench.reschedule(id) == RescheduleResult.MOVED
    [claimed] = await bench.claim("t", limit=2, lease=10 * COARSE)
    assert claimed.id == id
    return claimed


async def later(bench: Bench, id: str, at: int) -> None:
    assert await bench.reschedule(id, at=at) == RescheduleResult.MOVED
    await opened(bench)


async def leased(bench: Bench, id: str, at: int) -> None:
    claimed = await taken_now(bench, id)
    await opened(bench)
    assert (await bench.find(id=id)).state == "leased"
    assert await bench.end(claimed, "retry", delay=at - bench.now, error="broke") == "scheduled"


async def released(bench: Bench, id: str, at: int) -> None:
    claimed = await taken_now(bench, id)
    assert await bench.end(claimed, "release", delay=at - bench.now) == "scheduled"
    await opened(bench)


async def retried(bench: Bench, id: str, at: int) -> None:
    claimed = await taken_now(bench, id)
    assert await bench.end(claimed, "retry", delay=at - bench.now) == "scheduled"
    await opened(bench)


async def dead(bench: Bench, id: str, at: int) -> None:
    claimed = await taken_now(bench, id)
    assert await bench.end(claimed, "dead", error="no use") == "dead"
    await opened(bench)
    assert (await bench.find(id=id)).state == "dead"
    assert (await bench.engine.requeue("t", [id], delay=at - bench.now, now=bench.now)).count == 1


async def requeued(bench: Bench, id: str, at: int) -> None:
    claimed = await taken_now(bench, id)
    assert await bench.end(claimed, "dead", error="no use") == "dead"
    assert (await bench.engine.requeue("t", [id], delay=at - bench.now, now=bench.now)).count == 1
    await opened(bench)


async def opened(bench: Bench) -> None:
    """Its slot opens, and nothing in it is due."""
    bench.now = BEGIN + 5
    assert not await bench.claim("t", limit=1)


MOVES: dict[str, Callable[[Bench, str, int], Awaitable[None]]] = {
    "rescheduled": later, "leased": leased, "released": released, "retried": retried, "dead": dead, "requeued": requeued,
}  # fmt: skip


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("after", [1_000, 3_000, 4_007, 12_000])  # up to 2,000: ms; above: thousandths of four slots
async def test_a_message_that_was_moved_before_its_slot_opens_comes_once_at_its_new_time(
    redis_url: str, how: str, calendar: str, after: int
) -> None:
    length = CALENDARS[calendar]
    async with bench_at(redis_url, now=BEGIN - 2_000) as bench:
        await crowded(bench, calendar)
        due = BEGIN + length // 2
        ids = [(await bench.put("t", at=due)).id for _ in range(3)]
        assert {home(id) for id in ids} == {calendar}
        at = BEGIN + after if after < 2_000 else BEGIN + length * after // 4_000
        await MOVES[how](bench, ids[1], at)
        await counts_are_true(bench, ["t"])
        await come_out_on_time(bench, "t", {ids[0]: due, ids[1]: at, ids[2]: due, **await others(bench, ids)})


async def others(bench: Bench, ids: Sequence[str]) -> dict[str, int]:
    return {each.id: each.due for each in await bench.stored("t") if each.id not in ids}


@pytest.mark.parametrize("calendar", CALENDARS)
async def test_buckets_of_which_all_was_cancelled_are_passed_over(redis_url: str, calendar: str) -> None:
    length = CALENDARS[calendar]
    async with bench_at(redis_url, now=BEGIN - COARSE) as bench:
        await crowded(bench, calendar)
        dues = await put_at(bench, "t", [BEGIN + length // 2 + i for i in range(450)])
        ids = list(dues)
        gone = [*ids[:64], *ids[100:300], ids[449]]
        await bench.engine.cancel([Ref(id=id) for id in gone], now=bench.now)
        again = await put_at(bench, "t", [BEGIN + length // 2 + i for i in range(30)])
        await bench.engine.cancel([Ref(id=id) for id in list(again)[:29]], now=bench.now)
        left = {id: due for id, due in (dues | again).items() if id not in [*gone, *list(again)[:29]]}
        assert len({place(id) for id in [*dues, *again]}) == 480
        await counts_are_true(bench, ["t"])
        bench.now = BEGIN + 3
        assert not await bench.claim("t")
        await counts_are_true(bench, ["t"])
        await come_out_on_time(bench, "t", left | await others(bench, list(left)))


async def test_a_slot_of_which_all_was_cancelled_takes_newcomers(redis_url: str) -> None:
    async with bench_at(redis_url, now=BEGIN - COARSE) as bench:
        stays = await put_at(bench, "t", [BEGIN + 9 * COARSE])
        for count in (64, 36, 1, 130):
            ids = await put_many(bench, "t", count, at=BEGIN + FINE // 2)
            assert set(await bench.engine.cancel([Ref(id=id) for id in ids], now=bench.now)) == {CancelResult.CANCELLED}
        dues = await put_at(bench, "t", [BEGIN + FINE // 2] * 5)
        await counts_are_true(bench, ["t"])
        await come_out_on_time(bench, "t", dues | stays)


@pytest.mark.parametrize("colour", COLOURS)
async def test_for_a_hundred_years_who_comes_when_told_finds_each_message_when_it_is_due(redis_url: str, colour: str) -> None:
    draw = random.Random(5)
    spans = [0, 1, 999, FINE, 2 * FINE + 1, MIDDLE, 3 * MIDDLE + 5, COARSE, 5 * COARSE, YEAR, 30 * YEAR, 99 * YEAR]
    dues_of = [BEGIN + span + draw.randrange(-3, 4) for span in spans for _ in range(12)]
    dues_of += [BEGIN + draw.randrange(100 * YEAR) for _ in range(60)]
    async with bench_at(redis_url, colour, now=BEGIN - 1_000) as bench:
        dues = await put_at(bench, "t", dues_of)
        claims = 0
        while dues:
            claim = await bench.look("t", limit=1_000)
            claims += 1
            assert {each.id for each in claim.messages} == {id for id, due in dues.items() if due <= bench.now}
            assert all(dues.pop(each.id) == bench.now for each in claim.messages), "it came late"
            await finish_all(bench, claim.messages) if claim.messages else None
            if dues:
                assert claim.next_due is not None
                assert claim.next_due > bench.now
                bench.now = claim.next_due
        assert claims < 3 * len(dues_of), "it was told to come in vain, again and again"
