"""Tasks that are limited over all workers: so many at once, so many in a stretch of time, one for each lock."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from bide import AsyncQueue, BadOption, CancelResult, Locked, Worker, current
from bide.engines.gates import Entry
from tests.worker.conftest import LONG, Working
from tests.worker.faults import Faults


class Crowd:
    """Counts how many of each kind run at once."""

    def __init__(self) -> None:
        self.now: Counter[object] = Counter()
        self.most: Counter[object] = Counter()
        self.done: list[object] = []

    async def pass_by(self, kind: object, what: object, moments: int = 3) -> None:
        self.now[kind] += 1
        self.most[kind] = max(self.most[kind], self.now[kind])
        for _ in range(moments):
            await asyncio.sleep(0.001)
        self.now[kind] -= 1
        self.done.append(what)


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


async def test_no_more_run_at_once_than_the_task_says_over_all_workers(
    queue: AsyncQueue, working: Working, until: Any, crowd: Crowd
) -> None:
    @queue.task("sms", concurrency=3)
    async def sms(n: int) -> None:
        await crowd.pass_by("sms", n)

    @queue.task("mail")
    async def mail(n: int) -> None:
        crowd.done.append(f"mail {n}")

    await sms.send_many({"n": n} for n in range(40))
    async with working(queue), working(queue), working(queue):
        await mail.send_many({"n": n} for n in range(40))
        await until(lambda: len(crowd.done) == 80)
    assert crowd.most["sms"] == 3
    assert sorted(each for each in crowd.done if isinstance(each, int)) == list(range(40))


async def test_no_more_run_at_once_for_each_value_than_the_task_says(
    queue: AsyncQueue, working: Working, until: Any, crowd: Crowd
) -> None:
    @queue.task("sms", concurrency=2, per="{user}")
    async def sms(n: int, user: str = "nobody") -> None:
        await crowd.pass_by(user, n)

    await sms.send_many({"n": n, "user": f"u{n % 3}"} for n in range(45))
    await sms.send(n=45)
    async with working(queue), working(queue):
        await until(lambda: len(crowd.done) == 46)
    assert max(crowd.most.values()) <= 2
    assert sorted(map(str, crowd.done), key=int) == [str(n) for n in range(46)]


async def test_what_waits_for_one_value_holds_up_no_other(queue: AsyncQueue, working: Working, until: Any) -> None:
    gate, begun = asyncio.Event(), list[str]()

    @queue.task("sms", concurrency=1, per="{user}")
    async def sms(user: str) -> None:
        begun.append(user)
        if user == "slow":
            await gate.wait()

    await sms.send_many([{"user": "slow"}] * 30)
    async with working(queue, concurrency=2):
        await until(lambda: begun == ["slow"])
        await sms.send(user="quick")
        await until(lambda: "quick" in begun)
        assert begun == ["slow", "quick"]
        gate.set()
        await until(lambda: len(begun) == 31)


async def test_a_message_that_waits_burns_no_attempt_and_can_be_cancelled(
    queue: AsyncQueue, working: Working, until: Any
) -> None:
    gate, attempts = asyncio.Event(), list[int]()

    @queue.task("sms", concurrency=1, per="{user}", max_attempts=1)
    async def sms(user: str) -> None:
        attempts.append(current().attempt)
        await gate.wait()

    first = await sms.send(user="u")
    async with working(queue):
        await until(lambda: attempts == [1])
        waiting, cancelled = await sms.send(user="u"), await sms.send(user="u")
        await until(lambda: is_aside(queue, waiting.id))
        await until(lambda: is_aside(queue, cancelled.id))
        assert await queue.cancel(cancelled) is CancelResult.CANCELLED
        gate.set()
        await until(lambda: is_gone(queue, waiting.id))
    assert attempts == [1, 1]
    assert await queue.get(first) is None


async def is_aside(queue: AsyncQueue, id: str) -> bool:
    info = await queue.get(id)
    return info is not None and info.state == "scheduled"


async def is_gone(queue: AsyncQueue, id: str) -> bool:
    return await queue.get(id) is None


async def test_a_rate_counts_over_all_workers(queue: AsyncQueue, working: Working, until: Any) -> None:
    begun: list[int] = []
    loop = asyncio.get_running_loop()
    times: list[float] = []

    @queue.task("sms", rate="10/1h")
    async def sms(n: int) -> None:
        begun.append(n)
        times.append(loop.time())

    @queue.task("mail")
    async def mail() -> None:
        begun.append(-1)

    await sms.send_many({"n": n} for n in range(40))
    async with working(queue), working(queue):
        await until(lambda: len(begun) == 10)
        await mail.send()
        await until(lambda: -1 in begun)
    stats = await queue.stats("sms")
    assert (len(begun), stats.ready, stats.leased) == (11, 30, 0)  # what may not begin yet is as due as it was


async def test_a_high_priority_comes_first_at_a_rate(queue: AsyncQueue, working: Working, until: Any) -> None:
    begun: list[int] = []

    @queue.task("sms", rate="1/200ms")
    async def sms(n: int) -> None:
        begun.append(n)

    await sms.send_many({"n": n} for n in range(4))
    async with working(queue):
        await until(lambda: len(begun) == 1)
        await sms.options(priority="high").send(n=9)
        before = len(begun)  # more than one when the machine stood still meanwhile
        await until(lambda: len(begun) == 5)
    assert begun.index(9) <= before + 1


async def test_a_rate_for_each_value_lets_messages_of_others_pass(queue: AsyncQueue, working: Working, until: Any) -> None:
    begun: list[str] = []

    @queue.task("sms", rate="2/1h", per="{user}")
    async def sms(user: str) -> None:
        begun.append(user)

    await sms.send_many({"user": f"u{n % 3}"} for n in range(30))
    async with working(queue, concurrency=1):
        await until(lambda: len(begun) == 6)
        await until(lambda: all_aside(queue, 24))
    assert Counter(begun) == {"u0": 2, "u1": 2, "u2": 2}


async def all_aside(queue: AsyncQueue, count: int) -> bool:
    return (await queue.stats("sms")).scheduled == count


async def test_one_runs_at_a_time_for_each_lock_also_of_another_task(
    queue: AsyncQueue, working: Working, until: Any, crowd: Crowd
) -> None:
    @queue.task("pay", lock="order:{order}")
    async def pay(order: int, n: int) -> None:
        await crowd.pass_by(order, n)

    @queue.task("ship", lock="order:{order}")
    def ship(order: int, n: int) -> None:
        crowd.now[order] += 1
        crowd.most[order] = max(crowd.most[order], crowd.now[order])
        crowd.now[order] -= 1
        crowd.done.append(n)

    await pay.send_many({"order": n % 4, "n": n} for n in range(40))
    await ship.send_many({"order": n % 4, "n": n} for n in range(40, 80))
    async with working(queue), working(queue):
        await until(lambda: len(crowd.done) == 80)
    assert set(crowd.most.values()) == {1}
    assert sorted(map(str, crowd.done), key=int) == [str(n) for n in range(80)]


async def test_a_task_waits_for_the_lock_of_a_program(queue: AsyncQueue, working: Working, until: Any) -> None:
    begun: list[int] = []

    @queue.task("pay", lock="order:{order}")
    async def pay(order: int) -> None:
        begun.append(order)

    async with working(queue):
        async with queue.lock("order:42", wait=LONG):
            sent = await pay.send(order=42)
            await until(lambda: is_aside(queue, sent.id))
            assert begun == []
        await until(lambda: begun == [42])


async def test_a_conflict_that_is_an_error_is_buried_at_once(queue: AsyncQueue, working: Working, until: Any) -> None:
    @queue.task("pay", lock="order:{order}", on_conflict="error")
    async def pay(order: int) -> None:
        raise AssertionError

    async with working(queue), queue.lock("order:42"):
        sent = await pay.send(order=42)
        await until(lambda: is_in(queue, sent.id, "dead"))
    info = await queue.get(sent)
    assert info is not None
    assert (info.last_error, info.attempt) == ("Locked: the lock order:42 is held", 1)


async def is_in(queue: AsyncQueue, id: str, state: str) -> bool:
    info = await queue.get(id)
    return info is not None and info.state == state


async def test_a_conflict_that_is_deferred_comes_back_after_its_delay(queue: AsyncQueue, working: Working, until: Any) -> None:
    begun: list[int] = []

    @queue.task("pay", lock="order:{order}", on_conflict="defer", lock_delay="1h", max_attempts=1)
    async def pay(order: int) -> None:
        begun.append(order)

    async with working(queue):
        async with queue.lock("order:42"):
            sent = await pay.send(order=42)
            await until(lambda: is_aside(queue, sent.id))
        info = await queue.get(sent)
        assert info is not None
        assert info.due > sent.due + 3_000_000
        assert begun == []
        await queue.reschedule(sent, delay=0)
        await until(lambda: begun == [42])


async def test_who_waits_for_a_lock_too_long_is_buried(queue: AsyncQueue, working: Working, until: Any) -> None:
    @queue.task("pay", lock="order:{order}", lock_wait="50ms")
    async def pay(order: int) -> None:
        raise AssertionError

    async with working(queue), queue.lock("order:42"):
        sent = await pay.send(order=42)
        await until(lambda: is_in(queue, sent.id, "dead"))
    info = await queue.get(sent)
    assert info is not None
    assert info.last_error == "Locked: the lock order:42 was held for all of 0.05 s"


async def test_only_due_messages_compete_for_a_lock(queue: AsyncQueue, working: Working, until: Any) -> None:
    begun: list[int] = []

    @queue.task("pay", lock="order")
    async def pay(n: int) -> None:
        begun.append(n)

    await pay.after("1h").send(n=1)
    async with working(queue):
        await pay.send(n=2)
        await until(lambda: begun == [2])


async def test_what_a_dead_worker_held_is_free_when_its_lease_has_ended(
    queue: AsyncQueue, working: Working, until: Any
) -> None:
    begun: list[int] = []

    @queue.task("pay", lock="order")
    async def pay(n: int) -> None:
        begun.append(n)

    held = await (await queue.session.engine()).gates.enter([Entry("lock order", "somebody who dies", 300)])
    assert held[0].token is not None
    async with working(queue):
        await pay.send_many({"n": n} for n in range(3))
        await until(lambda: sorted(begun) == [0, 1, 2])


async def test_a_stopped_worker_gives_its_places_back(queue: AsyncQueue, working: Working, until: Any) -> None:
    begun: list[int] = []

    @queue.task("pay", lock="order")
    async def pay(n: int) -> None:
        begun.append(n)
        if n == 1:
            await asyncio.sleep(LONG * 10)

    sent = await pay.send(n=1)
    async with working(queue):
        await until(lambda: begun == [1])
    async with queue.lock("order"):  # free at once
        pass
    await queue.cancel(sent)


async def test_a_message_that_does_not_fit_its_task_is_told_so_and_not_held_back(
    queue: AsyncQueue, working: Working, until: Any
) -> None:
    @queue.task("pay", lock="order:{order}", max_attempts=1)
    async def pay(order: int) -> None:
        raise AssertionError

    sent = await queue.send("pay", {"order": "many"}, max_attempts=1)
    async with working(queue):
        await until(lambda: is_in(queue, sent.id, "dead"))
    info = await queue.get(sent)
    assert info is not None
    assert info.last_error is not None
    assert "Expected `int`" in info.last_error


async def test_a_worker_whose_place_is_lost_stops_the_handler_and_releases_its_message(
    queue: AsyncQueue, working: Working, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[int] = []

    @queue.task("pay", lock="order", max_attempts=1)
    async def pay() -> None:
        begun.append(1)
        if len(begun) == 1:
            await asyncio.sleep(LONG * 10)

    await pay.send()
    async with working(queue, lease="300ms") as worker:
        await until(lambda: begun == [1])
        assert worker._service is not None
        [handling] = worker._service._under_way
        assert handling.places is not None
        await (await queue.session.engine()).gates.leave(handling.places.held)
        await until(lambda: begun == [1, 1])
    assert "has lost its lock" in caplog.text


@pytest.mark.parametrize("verb", ["gates.enter", "gates.leave"])
async def test_a_worker_that_ends_while_the_engine_fails_leaves_no_task(queue: AsyncQueue, until: Any, verb: str) -> None:
    begun = asyncio.Event()

    @queue.task("pay", lock="order")
    async def pay() -> None:
        begun.set()

    await pay.send()
    before = asyncio.all_tasks()
    faults = await Faults.of(queue)
    failures = faults.fail(verb)
    async with Worker(queue, grace=0) as worker:
        await until(lambda: len(failures) > 1)
        assert begun.is_set() == (verb == "gates.leave")
    assert worker.health().running == 0
    await until(lambda: asyncio.all_tasks() <= before)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"rate": "100"}, "Give a whole number and a stretch of time"),
        ({"rate": "0/m"}, "nothing could ever begin"),
        ({"rate": "5/0s"}, "nothing could ever begin"),
        ({"per": "{order}"}, "give one of them too"),
        ({"concurrency": 1, "per": "{user}"}, "no argument of the task"),
        ({"lock": "{order.id}"}, "no argument of the task"),
        ({"lock": "{order"}, "in braces"),
        ({"lock": ""}, "lock is ''"),
        ({"lock": "x", "on_conflict": "fight"}, "on_conflict is 'fight'"),
        ({"lock": "x", "on_conflict": "defer", "lock_delay": 0}, "tried again without end"),
        ({"concurrency": 1, "per": "order"}, "Name an argument in braces: per='{user}'"),
        ({"on_conflict": "defer"}, "on_conflict= says what to do when the lock is taken: give lock= too"),
        ({"lock_wait": "1m"}, "lock_wait= says what to do"),
        ({"lock": "x", "lock_delay": "1m"}, "lock_delay= is for on_conflict='defer', and on_conflict is 'wait'"),
        ({"lock": "x", "on_conflict": "defer", "lock_wait": "1m"}, "lock_wait= is for on_conflict='wait'"),
    ],
)
async def test_options_that_can_not_be_are_refused(memory: AsyncQueue, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):

        @memory.task("pay", **options)
        async def pay(order: int) -> None: ...


async def test_one_lock_object_is_held_once(memory: AsyncQueue) -> None:
    lock = memory.lock("x")
    async with lock:
        with pytest.raises(BadOption, match="held already"):
            await lock.__aenter__()
        with pytest.raises(Locked):
            async with memory.lock("x"):
                pass
    async with lock:
        assert not lock.lost
