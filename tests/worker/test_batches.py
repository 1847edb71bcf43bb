"""Tasks with `batch=`: their function is called with many messages, and each message has its own end."""

import asyncio
import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bide import (
    AsyncQueue,
    Bury,
    ConfigError,
    Failed,
    Outgoing,
    Retry,
    Snooze,
    current,
    current_batch,
    steps,
)
from tests.worker.conftest import EVERY_ENGINE, Working, place
from tests.worker.faults import Call, Faults

LONG = "1h"  # nobody waits for it


class Seen:
    """What handlers were given."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def __call__(self, items: Sequence[Any]) -> None:
        self.batches.append(list(items))

    @property
    def items(self) -> list[Any]:
        return sorted(item for batch in self.batches for item in batch)

    @property
    def sizes(self) -> list[int]:
        return sorted(map(len, self.batches))


@pytest.fixture(params=EVERY_ENGINE)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place(request, tmp_path)


@pytest.fixture
def seen() -> Seen:
    return Seen()


async def left(queue: AsyncQueue) -> int:
    stats = await queue.stats()
    return stats.scheduled + stats.ready + stats.leased


async def test_a_full_batch_goes_at_once_and_the_rest_waits_for_its_linger(
    queue: AsyncQueue, working: Working, until: Any, seen: Seen
) -> None:
    @queue.task("likes", batch=3, linger=LONG)
    async def write(likes: list[int]) -> None:
        seen(likes)

    async with working(queue):
        await write.send_many(range(7))
        await until(lambda: len(seen.batches) == 2)
        await write.send_many([7, 8])
        await until(lambda: len(seen.batches) == 3)
    assert seen.sizes == [3, 3, 3]
    assert seen.items == list(range(9))
    assert await left(queue) == 0


async def test_what_does_not_fill_a_batch_goes_after_its_linger(
    queue: AsyncQueue, working: Working, until: Any, seen: Seen
) -> None:
    @queue.task("likes", batch=100, linger="50ms")
    async def write(likes: list[int]) -> None:
        seen(likes)

    async with working(queue):
        await write.send(1)
        await until(lambda: seen.items == [1])
        await write.send(2)
        await until(lambda: seen.items == [1, 2])


async def test_without_a_linger_a_batch_is_what_is_due(queue: AsyncQueue, working: Working, until: Any, seen: Seen) -> None:
    @queue.task("likes", batch=100)
    async def write(likes: list[int]) -> None:
        seen(likes)

    await write.send_many(range(250))
    async with working(queue):
        await until(lambda: len(seen.items) == 250)
    assert seen.items == list(range(250))
    assert max(seen.sizes) == 100


async def test_one_error_fails_all_and_each_message_has_its_own_attempts(
    queue: AsyncQueue, working: Working, until: Any, seen: Seen
) -> None:
    attempts: list[dict[int, int]] = []

    @queue.task("likes", batch=3, linger=LONG, backoff=steps("1ms"))
    async def write(likes: list[int]) -> None:
        seen(likes)
        attempts.append({like: each.attempt for like, each in zip(likes, current_batch(), strict=True)})
        if len(seen.batches) == 1:
            raise OSError("the database is away")

    async with working(queue):
        await write.send_many([1, 2, 3])
        await until(lambda: len(seen.batches) == 2)
    assert seen.sizes == [3, 3]
    assert attempts == [{1: 1, 2: 1, 3: 1}, {1: 2, 2: 2, 3: 2}]


async def test_on_its_last_attempt_a_message_is_handled_alone_so_that_it_takes_no_other_with_it(
    queue: AsyncQueue, working: Working, until: Any, seen: Seen
) -> None:
    @queue.task("likes", batch=20, linger="20ms", backoff=steps("1ms"))
    async def write(likes: list[int]) -> None:
        seen(likes)
        if 13 in likes:
            raise ValueError("an unlucky number")

    await write.send_many(range(20))
    async with working(queue):

        async def ended() -> bool:
            return (await queue.stats("likes")).dead == 1 and await left(queue) == 0

        await until(ended)
    [dead] = await queue.messages("likes", state="dead")
    assert (dead.body, dead.attempt, dead.last_error) == (13, 3, "ValueError: an unlucky number")
    assert [13] in seen.batches


async def test_a_message_with_one_attempt_is_handled_in_a_batch(
    queue: AsyncQueue, working: Working, until: Any, seen: Seen
) -> None:
    @queue.task("likes", batch=3, linger=LONG, max_attempts=1)
    async def write(likes: list[int]) -> None:
        seen(likes)

    await write.send_many(range(3))
    async with working(queue):
        await until(lambda: seen.sizes == [3])


async def test_what_fails_by_itself_leaves_the_others_done(queue: AsyncQueue, working: Working, until: Any, seen: Seen) -> None:
    told: list[tuple[object, str]] = []

    @queue.task("likes", batch=5, linger=LONG, on_dead=lambda delivery, reason: told.append((delivery.body, reason)))
    async def write(likes: list[str]) -> list[Failed]:
        seen(likes)
        return [
            Failed("buried", Bury("no such post")),
            Failed("retried", "try it later"),
            Failed("snoozed", Snooze("1h")),
            Failed("timed", Retry("1h")),
        ]

    async with working(queue):
        sent = await write.send_many(["buried", "done", "retried", "snoozed", "timed"])

        async def ended() -> bool:
            return (await queue.stats("likes")).leased == 0 and bool(seen.batches)

        await until(ended)
    found = [await queue.get(each) for each in sent]
    assert [each and (each.state, each.attempt, each.last_error) for each in found] == [
        ("dead", 1, "no such post"),
        None,
        ("scheduled", 1, "try it later"),
        ("scheduled", 0, None),
        ("scheduled", 1, "asked for another attempt in 1h"),
    ]
    assert told == [("buried", "no such post")]


async def test_errors_that_are_not_worth_another_attempt_bury_the_item(queue: AsyncQueue, working: Working, until: Any) -> None:
    @queue.task("likes", batch=2, linger=LONG, retry_for=OSError)
    async def write(likes: list[int]) -> list[Failed]:
        return [Failed(likes[0], KeyError("post")), Failed(likes[1], OSError("busy"))]

    async with working(queue):
        await write.send_many([0, 1])

        async def ended() -> bool:
            stats = await queue.stats("likes")
            return (stats.dead, stats.scheduled) == (1, 1)

        await until(ended)


async def test_what_can_not_be_read_fails_by_itself(queue: AsyncQueue, working: Working, until: Any, seen: Seen) -> None:
    @queue.task("likes", batch=2, linger=LONG)
    async def write(likes: list[int]) -> None:
        seen(likes)

    async with working(queue):
        await queue.send_many("likes", [1, "two", 3])
        await until(lambda: seen.sizes == [2])
    assert seen.items == [1, 3]
    [dead] = await queue.messages("likes", state="dead")
    assert dead.body == "two"


async def test_an_answer_that_nobody_can_act_on_fails_all(queue: AsyncQueue, working: Working, until: Any) -> None:
    wrong: list[Any] = [3, ["a"], [Failed("z")], "a"]

    @queue.task("likes", batch=1, max_attempts=1)
    async def write(likes: list[str]) -> Any:
        return wrong.pop(0)

    await queue.send_many("likes", ["a"] * 4)
    async with working(queue, concurrency=1):

        async def ended() -> bool:
            return (await queue.stats("likes")).dead == 4

        await until(ended)
    dead = {each.last_error for each in await queue.messages("likes", state="dead")}
    name = write.definition.name
    then = "return None if all is done, or a list of Failed(item, error) for what failed."
    assert dead == {
        f"ConfigError: {name}() is given a batch and returned a int: {then}",
        f"ConfigError: {name}() is given a batch and returned a str: {then}",
        f"ConfigError: {name}() is given a batch and returned a list with a str in it: {then}",
        f"ConfigError: {name}() returned a Failed for an item of type str that is not in its batch: give it an item of "
        "the list, not its place or a field of it.",
    }


async def test_a_sync_handler_has_one_thread_for_the_batch(queue: AsyncQueue, working: Working, until: Any, seen: Seen) -> None:
    threads: set[str] = set()

    @queue.task("likes", batch=50, linger=LONG)
    def write(likes: list[int]) -> list[Failed]:
        seen(likes)
        threads.add(threading.current_thread().name)
        assert [each.body for each in current_batch()] == likes
        return [Failed(like, Bury("odd one")) for like in likes if like == 7]

    await write.send_many(range(200))
    async with working(queue, concurrency=1, threads=1):
        await until(lambda: len(seen.items) == 200)

        async def ended() -> bool:
            return (await queue.stats("likes")).dead == 1 and await left(queue) == 0

        await until(ended)
    assert seen.sizes == [50] * 4
    assert len(threads) == 1


async def test_a_batch_takes_one_place(queue: AsyncQueue, working: Working, until: Any) -> None:
    gate, now, most = asyncio.Event(), 0, 0
    begun: list[int] = []

    @queue.task("likes", batch=10)
    async def write(likes: list[int]) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        begun.append(len(likes))
        await gate.wait()
        now -= 1

    await write.send_many(range(100))
    async with working(queue, concurrency=3):
        await until(lambda: len(begun) == 3)
        assert (await queue.stats("likes")).leased == 30  # nothing is taken that has no place
        gate.set()
        await until(lambda: len(begun) == 10)
    assert most == 3


async def test_the_ends_of_a_batch_are_one_call(memory: AsyncQueue, working: Working, until: Any) -> None:
    faults = await Faults.of(memory)
    sizes: list[int] = []

    async def settle(call: Call, asked: Sequence[Any]) -> Any:
        sizes.append(len(asked[0]))
        return await call()

    faults.around["settle"] = settle

    @memory.task("likes", batch=500, linger=LONG)
    async def write(likes: list[int]) -> None: ...

    await write.send_many(range(500))
    async with working(memory):

        async def ended() -> bool:
            return await left(memory) == 0

        await until(ended)
    assert sizes == [500]


async def test_what_has_gathered_is_given_back_at_once_when_the_worker_stops(
    queue: AsyncQueue, working: Working, until: Any, soon: Any, seen: Seen
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    @queue.task("likes", batch=2, linger=LONG)
    async def write(likes: list[int]) -> None:
        begun.set()
        await gate.wait()
        seen(likes)

    async with working(queue, grace="1m") as worker:
        sent = await write.send_many(range(3))

        async def taken() -> bool:
            return (await queue.stats("likes")).leased == 3

        await soon(begun.wait())
        await until(taken)
        stopping = asyncio.ensure_future(worker.stop())

        async def given_back() -> bool:
            return (await queue.stats("likes")).leased == 2

        await until(given_back)  # while the other batch goes on
        gate.set()
        await soon(stopping)
    assert seen.sizes == [2]
    [back] = [info for each in sent if (info := await queue.get(each)) is not None]
    assert (back.state, back.attempt) == ("ready", 0)


async def test_a_batch_that_outlasts_the_grace_is_given_back(
    queue: AsyncQueue, working: Working, until: Any, soon: Any
) -> None:
    begun, cancelled = asyncio.Event(), list[int]()

    @queue.task("likes", batch=5, linger=LONG)
    async def write(likes: list[int]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(len(likes))
            raise

    async with working(queue):
        sent = await write.send_many(range(5))
        await soon(begun.wait())
    assert cancelled == [5]
    found = [await queue.get(each) for each in sent]
    assert {each and (each.state, each.attempt) for each in found} == {("ready", 0)}


async def test_a_timeout_is_for_the_whole_batch(queue: AsyncQueue, working: Working, until: Any, seen: Seen) -> None:
    expired: list[bool] = []

    @queue.task("likes", batch=3, linger=LONG, timeout="30ms", max_attempts=1)
    async def write(likes: list[int]) -> None:
        seen(likes)
        try:
            await asyncio.Event().wait()
        finally:
            expired.extend(each.expired for each in current_batch())

    await write.send_many(range(3))
    async with working(queue):

        async def ended() -> bool:
            return (await queue.stats("likes")).dead == 3

        await until(ended)
    assert seen.sizes == [3]
    assert expired == [True] * 3
    reasons = {each.last_error for each in await queue.messages("likes", state="dead")}
    assert reasons == {"TimeoutError: took longer than its timeout of 0.03 s"}


async def test_after_a_timeout_the_next_message_that_is_handled_alone_has_its_whole_time(
    memory: AsyncQueue, working: Working, until: Any, seen: Seen
) -> None:
    @memory.task("likes", batch=3, linger="20ms", timeout="50ms", max_attempts=2, backoff=steps("1ms"))
    async def write(likes: list[int]) -> None:
        seen(likes)
        if 0 in likes:
            await asyncio.Event().wait()
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))

    await write.send_many(range(3))
    async with working(memory):

        async def ended() -> bool:
            return (await memory.stats("likes")).dead == 1 and await left(memory) == 0

        await until(ended)
    assert seen.batches[0] == [0, 1, 2]
    assert sorted(seen.batches[1:]) == [[0], [1], [2]]


async def test_middleware_is_called_once_around_a_batch(memory: AsyncQueue, working: Working, until: Any, seen: Seen) -> None:
    around: list[tuple[str, int]] = []

    async def timed(delivery: Any, handle: Any) -> None:
        around.append((delivery.topic, len(current_batch())))
        await handle()

    @memory.task("likes", batch=3, linger=LONG)
    async def write(likes: list[int]) -> None:
        seen(likes)

    await write.send_many(range(3))
    async with working(memory, middleware=[timed]):
        await until(lambda: seen.sizes == [3])
    assert around == [("likes", 3)]


async def test_current_is_refused_and_current_batch_gives_the_deliveries(
    memory: AsyncQueue, working: Working, until: Any
) -> None:
    said: list[str] = []
    ids: list[str] = []

    @memory.task("likes", batch=2, linger=LONG)
    async def write(likes: list[int]) -> None:
        with pytest.raises(ConfigError, match="current_batch") as refused:
            current()
        said.append(str(refused.value))
        ids.extend(each.id for each in current_batch())

    @memory.task("plain")
    async def plain() -> None:
        assert current_batch() == [current()]
        said.append("one")

    sent = await write.send_many(range(2))
    await plain.send()
    async with working(memory):
        await until(lambda: len(said) == 2)
    assert ids == [each.id for each in sent]


async def test_a_handler_ends_its_messages_by_itself(queue: AsyncQueue, working: Working, until: Any, soon: Any) -> None:
    done = asyncio.Event()

    @queue.task("likes", batch=4, linger=LONG, backoff=steps("1h"))
    async def write(likes: list[int]) -> None:
        await queue.ack_many(current_batch()[:2])
        await current_batch()[2].bury("by hand")
        done.set()
        raise OSError("after that")

    sent = await write.send_many(range(4))
    async with working(queue):
        await soon(done.wait())

        async def ended() -> bool:
            return (await queue.stats("likes")).leased == 0

        await until(ended)
    found = [await queue.get(each) for each in sent]
    assert [each and (each.state, each.last_error) for each in found] == [
        None,
        None,
        ("dead", "by hand"),
        ("scheduled", "OSError: after that"),
    ]


async def test_a_lease_that_is_lost_does_not_stop_the_batch_and_only_its_message_is_not_heard(
    memory: AsyncQueue, working: Working, until: Any, soon: Any, caplog: pytest.LogCaptureFixture
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    lost: list[bool] = []

    @memory.task("likes", batch=3, linger=LONG)
    async def write(likes: list[int]) -> None:
        begun.set()
        await gate.wait()
        lost.extend(each.expired for each in current_batch())

    sent = await write.send_many(range(3))
    async with working(memory) as worker:
        await soon(begun.wait())
        under_way = worker._service._under_way  # type: ignore[union-attr]
        member = next(each for each in under_way if each.delivery.id == sent[1].id)
        under_way._lost(member.taken, member.place)  # type: ignore[arg-type]
        gate.set()

        async def ended() -> bool:
            return (await memory.stats("likes")).leased == 1 and await left(memory) == 1

        await until(ended)
    assert lost == [False, True, False]
    assert "its batch goes on" in caplog.text


async def test_a_batch_whose_leases_are_all_lost_is_told_to_stop(
    queue: AsyncQueue, working: Working, until: Any, soon: Any, faults: Faults
) -> None:
    cancelled, begun = asyncio.Event(), asyncio.Event()
    taken: list[Any] = []

    @queue.task("likes", batch=3, linger=LONG)
    async def write(likes: list[int]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def all_taken() -> bool:
        taken.extend(await queue.receive("likes", limit=3 - len(taken)))
        return len(taken) == 3

    await write.send_many(range(3))
    async with working(queue, lease="300ms", concurrency=1):  # it has no place to take them itself
        await soon(begun.wait())
        faults.lose_leases()
        await until(all_taken)
        assert not cancelled.is_set()
        faults.keep_leases()
        await soon(cancelled.wait())
    assert await queue.ack_many(taken) == [True] * 3


async def test_a_rate_counts_messages(queue: AsyncQueue, working: Working, until: Any, seen: Seen) -> None:
    @queue.task("sms", batch=10, linger="10ms", rate="20/300ms")
    async def send(texts: list[int]) -> None:
        seen(texts)

    await send.send_many(range(50))
    async with working(queue):
        await until(lambda: len(seen.items) == 50)
    assert seen.items == list(range(50))
    assert max(seen.sizes) <= 10


async def test_a_failure_of_a_batch_is_logged_once_with_its_number(
    memory: AsyncQueue, working: Working, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @memory.task("likes", batch=100, linger=LONG, max_attempts=1)
    async def write(likes: list[int]) -> None:
        raise OSError("the database is away")

    await write.send_many(range(100))
    async with working(memory):

        async def ended() -> bool:
            return (await memory.stats("likes")).dead == 100

        await until(ended)
    told = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert [re.sub(r"\d+\.\d{3} s", "… s", each.getMessage()) for each in told] == [
        "The handler of 100 messages of likes failed for all of them after … s, and 100 of them are buried"
    ]
    assert len(told[0].message_ids) == 100  # type: ignore[attr-defined]


async def test_other_topics_go_on_while_a_batch_gathers(memory: AsyncQueue, working: Working, until: Any, seen: Seen) -> None:
    plain: list[int] = []

    @memory.task("likes", batch=3, linger=LONG)
    async def write(likes: list[int]) -> None:
        seen(likes)

    @memory.task("plain")
    async def other(n: int) -> None:
        plain.append(n)

    async with working(memory, concurrency=2):
        await write.send_many(range(2))
        for n in range(20):
            await other.send(n)
        await until(lambda: len(plain) == 20)
        await write.send(2)
        await until(lambda: seen.sizes == [3])


async def test_messages_come_with_their_own_options(queue: AsyncQueue, working: Working, until: Any) -> None:
    keys: list[str | None] = []

    @queue.task("likes", batch=2, linger=LONG)
    async def write(likes: list[int]) -> None:
        keys.extend(sorted(each.key for each in current_batch()))

    await queue.send_many("likes", [Outgoing(1, key="a"), Outgoing(2, key="b")])
    async with working(queue):
        await until(lambda: keys == ["a", "b"])
