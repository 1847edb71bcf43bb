"""What is told of attempts: when the first of a message began, and the records of those that failed."""

from typing import Any

import msgspec

from bide.engines.base import Claimed, NewMessage
from bide.engines.stored import LONGEST, MOST, ROOM
from bide.testing.contract.bench import LEASE, Bench, needs
from bide.testing.contract.claim import COMES_BACK


class Began:
    async def test_began_tells_when_the_first_attempt_began(self, bench: Bench) -> None:
        # Given a message that comes back without anybody having begun with it
        sent = await bench.put("mail", max_attempts=9)
        bench.move(3_000)
        message = await _claimed(bench)
        set_aside: dict[str, Any] = {"delay": 2_000, "aside": True}
        for options in ({}, set_aside):
            assert (message.id, message.began) == (sent.id, None)
            await bench.end(message, "release", **options)
            bench.move(2_000)
            message = await _claimed(bench)
        assert message.began is None
        # When an end tells when it began, all later deliveries do, whatever ends them
        began = bench.now
        await bench.end(message, "release", delay=2_000, began=began)
        for verdict, delay in COMES_BACK:
            bench.move(6_000)
            message = await _claimed(bench)
            assert (message.id, message.began) == (sent.id, began)
            await bench.end(message, verdict, delay=delay)
        await _claimed(bench)
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        assert (await _claimed(bench)).began == began

    async def test_began_tells_when_a_lease_that_ended_began(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=9)
        began = bench.now
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        [again] = await bench.claim("mail", limit=5)
        assert again.id == claimed.id
        assert again.began is not None
        assert began <= again.began < bench.now

    @needs("cancel")
    async def test_a_new_time_makes_a_message_forget_when_its_first_attempt_began(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=9)
        await bench.end(claimed, "retry", delay=2_000, began=bench.now)
        assert await bench.reschedule(claimed.id)
        assert (await _claimed(bench)).began is None

    @needs("keys")
    async def test_replacing_makes_a_message_forget_when_its_first_attempt_began(self, bench: Bench) -> None:
        message = await bench.running("mail", key="k", max_attempts=9)
        for how in ("replace", "later"):
            await bench.end(message, "retry", delay=2_000, began=bench.now)
            again = await bench.put("mail", delay=1_000, key="k", if_exists=how, max_attempts=9)
            assert again.id == message.id
            bench.move(4_000)
            message = await _claimed(bench)
            assert message.began is None

    @needs("dead")
    async def test_requeue_makes_a_message_forget_when_its_first_attempt_began(self, bench: Bench) -> None:
        message = await bench.running("mail", max_attempts=9)
        await bench.end(message, "retry", began=bench.now)
        await bench.end(await _claimed(bench), "dead")
        assert (await bench.engine.requeue("mail", now=bench.now)).count == 1
        assert (await _claimed(bench)).began is None


async def _claimed(bench: Bench) -> Claimed:
    """The only message that is due, claimed twice, as after a lost answer."""
    request = f"at {bench.now}, {id(object())}"
    first = await bench.engine.claim(["mail"], 5, LEASE, request=request, now=bench.now)
    again = await bench.engine.claim([], 5, LEASE, request=request, now=bench.now)
    [message] = first.messages
    assert list(again.messages) == [message]
    return message


class Traces:
    @needs("traces", "lookup", "dead")
    async def test_records_of_failed_attempts_are_kept_with_the_message(self, bench: Bench) -> None:
        # Given a message that fails three times: its records are there whatever state it is in
        claimed = await bench.running("mail", b"L" * 2_000, max_attempts=3)
        records: list[bytes] = []
        for record in (b"\0first\xff", b"{}", b"third"):
            assert await _records(bench, claimed) == records
            await bench.end(claimed, "retry", delay=1_000, error="broke", trace=record)
            records.append(record)
            assert await _records(bench, claimed) == records
            bench.move(1_000)
            assert await _records(bench, claimed) == records
            claimed = (await bench.claim("mail", limit=5) or [claimed])[0]
        # Then the dead letter has them, and a listing has not
        [dead] = await bench.stored("mail", "dead")
        assert (dead.id, dead.last_error, list(dead.traces)) == (claimed.id, "broke", [])
        # And one that is buried by its handler has its record, too
        other = await bench.running("mail")
        await bench.end(other, "dead", error="no use", trace=b"why")
        assert await _records(bench, other) == [b"why"]

    @needs("traces", "lookup")
    async def test_a_retry_that_gives_more_attempts_keeps_the_records(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=3)
        for number in (1, 2, 3):
            assert await bench.end(claimed, "retry", trace=b"%d" % number, attempts=5) == "scheduled"
            [claimed] = await bench.claim("mail", limit=5)
        assert await _records(bench, claimed) == [b"1", b"2", b"3"]
        assert await bench.end(claimed, "retry", trace=b"4", attempts=4) == "dead"
        assert await _records(bench, claimed) == [b"1", b"2", b"3", b"4"]

    @needs("traces", "lookup")
    async def test_the_end_of_a_lease_is_recorded_as_an_attempt(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=2)
        began = [bench.now]
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).returned == 1
        await bench.claim("mail", limit=5)
        began.append(bench.now)
        bench.move(LEASE + 1_000)
        assert (await bench.tend()).buried == 1
        for number, (record, begin) in enumerate(zip(await _records(bench, claimed), began, strict=True), 1):
            told = msgspec.json.decode(record)
            assert told == {"attempt": number, "began": told["began"]}
            assert begin <= told["began"] < bench.now

    @needs("traces", "lookup")
    async def test_releases_leave_no_record(self, bench: Bench) -> None:
        claimed = await bench.running("mail")
        await bench.end(claimed, "release", delay=1_000, trace=b"unused")
        assert await _records(bench, claimed) == []

    @needs("traces", "lookup")
    async def test_the_last_ten_records_are_kept(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=100)
        records = [b"%d" % n for n in range(MOST + 3)]
        for record in records:
            await bench.end(claimed, "retry", trace=record)
            [claimed] = await bench.claim("mail", limit=5)
        assert await _records(bench, claimed) == records[-MOST:]

    @needs("traces", "lookup")
    async def test_long_records_leave_room_for_fewer(self, bench: Bench) -> None:
        claimed = await bench.running("mail", max_attempts=100)
        records = [b"short", b"a" * 100, b"b" * LONGEST, b"c" * (ROOM - LONGEST), b"d", b"e" * LONGEST]
        for record, kept in zip(records, (1, 2, 3, 2, 2, 2), strict=True):
            await bench.end(claimed, "retry", trace=record)
            [claimed] = await bench.claim("mail", limit=5)
            told = await _records(bench, claimed)
            assert told == records[: records.index(record) + 1][-kept:]

    @needs("traces", "lookup", "dead")
    async def test_requeue_keeps_the_records_of_the_life_before(self, bench: Bench) -> None:
        claimed = await bench.running("mail")
        await bench.end(claimed, "dead", trace=b"first life")
        await bench.engine.requeue("mail", now=bench.now)
        assert await _records(bench, claimed) == [b"first life"]
        [claimed] = await bench.claim("mail", limit=5)
        await bench.end(claimed, "dead", trace=b"second life")
        assert await _records(bench, claimed) == [b"first life", b"second life"]

    @needs("traces", "lookup", "keys")
    async def test_replacing_drops_the_records(self, bench: Bench) -> None:
        claimed = await bench.running("mail", key="k")
        for how in ("replace", "later"):
            await bench.end(claimed, "retry", trace=b"before")
            assert await _records(bench, claimed) == [b"before"]
            assert (await bench.put("mail", key="k", if_exists=how)).id == claimed.id
            assert await _records(bench, claimed) == []
            [claimed] = await bench.claim("mail", limit=5)

    @needs("traces", "lookup", "inspect")
    async def test_records_do_not_outlive_their_message(self, bench: Bench) -> None:
        # Given messages with records that end in all the ways there are
        await bench.put_all(*(NewMessage("mail", b"%d" % n, expires_in=60_000 if n == 2 else None) for n in range(5)))
        for claimed in await bench.claim("mail", limit=5):
            await bench.end(claimed, "retry", delay=1_000, trace=b"x" * 1_000)
        bench.move(1_000)
        done, buried, _, _, _ = sorted(await bench.claim("mail", limit=5), key=lambda each: each.body)
        await bench.end(done, "done")
        await bench.end(buried, "dead", trace=b"y")
        bench.move(60_000)
        await bench.tend()
        await bench.engine.purge("mail", "dead", now=bench.now)
        for each in await bench.stored("mail"):
            await bench.engine.purge("mail", each.state, now=bench.now)
        # Then nothing is left of the topic
        assert dict((await bench.engine.stats(now=bench.now)).topics) == {}
        fresh = await bench.running("mail")
        assert await _records(bench, fresh) == []


async def _records(bench: Bench, message: Claimed) -> list[bytes]:
    return list((await bench.find(id=message.id)).traces)
