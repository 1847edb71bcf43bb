"""A lease is kept as long as its handler runs; a handler whose lease is lost is told, and not heard."""

import asyncio
import threading
import time
from typing import Any

import pytest

from bide import AsyncDelivery, AsyncQueue, OutcomeUnknown, Queue, Unavailable, current
from bide.engines.base import End
from bide.queue import leases
from bide.queue.heartbeat import Heartbeat
from bide.queue.leases import Beat
from bide.worker import service
from tests.worker.conftest import once
from tests.worker.faults import Faults
from tests.worker.test_running import ended

LEASE = "200ms"
THREE_LEASES = 0.6  # seconds


@pytest.fixture(autouse=True)
def wide_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stands still for half a lease notices it, and leaves others the time to renew theirs: the machine may have stood."""
    for module in (leases, service):
        monkeypatch.setattr(module, "PULSE", 0.05)
    monkeypatch.setattr(leases, "LATE", 0.05)


class Thief:
    """Tries all the time, in a thread of its own, to get what a worker holds. It notices when it stood still, as workers do."""

    def __init__(self, queue: AsyncQueue, topic: str) -> None:
        self._queue = Queue._of(queue.session.setup)
        self._topic = topic
        self._stop = threading.Event()
        self.stolen = 0
        self.tries = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._queue.session.open().receiver.notice_absence()
        while not self._stop.is_set():
            self.stolen += len(self._queue.receive(self._topic))
            self.tries += 1
            self._stop.wait(0.02)
        self._queue.close()

    async def __aenter__(self) -> "Thief":
        self._thread.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)


async def taken_by_hand(queue: AsyncQueue, topic: str) -> AsyncDelivery:
    """What a worker holds, as soon as its lease has run out."""
    found: list[AsyncDelivery] = []

    async def taken() -> bool:
        found.extend(await queue.receive(topic))
        return bool(found)

    await once(taken)
    return found[0]


async def test_a_handler_that_blocks_the_loop_keeps_all_leases(queue: AsyncQueue, working: Any, until: Any, soon: Any) -> None:
    go_on, over = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    @queue.task("a")
    async def handle(block: bool) -> None:
        attempts.append(current().attempt)
        await go_on.wait()
        if block:
            time.sleep(THREE_LEASES)  # noqa: ASYNC251  (that is what this is about)
            over.set()
        await over.wait()

    await queue.send_many("a", [{"block": False}, {"block": True}, {"block": False}])
    async with working(queue, lease=LEASE, concurrency=3):
        await until(lambda: len(attempts) == 3)
        async with Thief(queue, "a") as thief:
            go_on.set()
            await soon(over.wait())
            await until(lambda: ended(queue))

    assert thief.tries > 5
    assert thief.stolen == 0
    assert attempts == [1, 1, 1]


async def test_the_worker_renews_leases_while_its_heartbeat_gets_no_connection(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    attempts: list[int] = []
    connected = threading.Event()

    def hang(call: Any) -> Any:
        connected.wait()
        return call()

    @queue.task("a")
    async def handle() -> None:
        attempts.append(current().attempt)
        await asyncio.sleep(2.4)

    faults.beat["open"] = hang
    await handle.send()
    try:
        async with working(queue, lease="800ms"):
            await until(lambda: attempts)
            async with Thief(queue, "a") as thief:
                await until(lambda: ended(queue))
            connected.set()
    finally:
        connected.set()

    assert attempts == [1]
    assert thief.stolen == 0
    assert "The heartbeat is late: the worker has renewed 1 lease itself." in caplog.text


async def test_leases_that_the_worker_could_not_renew_are_not_told_as_renewed(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    @queue.task("a")
    async def handle() -> None:
        await asyncio.Event().wait()

    def cut(call: Any) -> Any:
        raise Unavailable("the wire is cut")

    faults.beat["extend"] = cut
    unknown = faults.fail("extend", error=OutcomeUnknown("a part of several is away", answers=[None]))
    await handle.send()
    async with working(queue, lease="800ms"):
        await until(lambda: len(unknown) > 2)
    assert "has renewed" not in caplog.text


async def test_a_claim_that_is_answered_while_a_handler_blocks_the_loop_keeps_its_leases(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults
) -> None:
    attempts: list[int] = []

    async def unseen(call: Any, asked: Any) -> Any:
        claim = await call()
        if claim.messages:
            time.sleep(2.0)  # noqa: ASYNC251  (as any handler may do just now)
        return claim

    @queue.task("a", max_attempts=1)
    async def handle() -> None:
        attempts.append(current().attempt)

    faults.around["claim"] = unseen
    await queue.send_many("a", [{}, {}, {}])
    async with Thief(queue, "elsewhere"), working(queue, lease="800ms"):  # the thief's upkeep buries what has lost its lease
        await until(lambda: ended(queue))

    assert attempts == [1, 1, 1]
    assert (await queue.stats("a")).dead == 0


async def test_the_handlers_of_a_claim_whose_leases_were_lost_before_its_answer_are_not_called(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    called: list[str] = []
    taken: list[AsyncDelivery] = []

    async def late(call: Any, asked: Any) -> Any:
        claim = await call()
        if claim.messages and not taken:
            taken.append(await taken_by_hand(queue, "a"))
        return claim

    def cut(call: Any) -> Any:
        raise Unavailable("the wire is cut")

    @queue.task("a")
    async def handle() -> None:
        called.append(current().id)

    faults.around["claim"] = late
    faults.beat["claim"] = cut
    await handle.send()
    async with working(queue, lease=LEASE):
        await until(lambda: "1 message left to others" in caplog.text)
        await taken[0].ack()
        await handle.send()
        await until(lambda: ended(queue))

    assert len(called) == 1
    assert called != [taken[0].id]


async def test_a_lease_that_is_lost_while_its_claim_is_begun_costs_no_other_message_its_handler(
    memory: AsyncQueue, working: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat's thread may find it at any moment."""
    called: list[tuple[str, str]] = []
    lost: list[Any] = []
    add = Heartbeat.add

    def add_and_lose(heartbeat: Heartbeat, beat: Beat) -> None:
        add(heartbeat, beat)
        if not lost:
            lost.append(next(iter(beat.holds)))
            assert heartbeat.remove(beat, lost[0])
            beat.lost(lost[0])

    @memory.task("charge")
    async def charge() -> None:
        called.append(("charge", current().topic))

    @memory.task("refund")
    async def refund() -> None:
        called.append(("refund", current().topic))

    monkeypatch.setattr(Heartbeat, "add", add_and_lose)
    for _ in range(3):
        await refund.send()
        await charge.send()
    async with working(memory):
        await until(lambda: len(called) >= 5)

    assert {task for task, topic in called if task != topic} == set()
    assert lost


async def test_a_handler_may_take_three_leases(queue: AsyncQueue, working: Any, until: Any) -> None:
    began: list[str] = []

    @queue.task("a")
    async def in_loop() -> None:
        began.append("a")
        await asyncio.sleep(THREE_LEASES)

    @queue.task("s")
    def in_thread() -> None:
        began.append("s")
        time.sleep(THREE_LEASES)

    await in_loop.send()
    await in_thread.send()
    async with working(queue, lease=LEASE):
        await until(lambda: len(began) == 2)
        async with Thief(queue, "a") as one, Thief(queue, "s") as other:
            await until(lambda: ended(queue))

    assert sorted(began) == ["a", "s"]
    assert (one.stolen, other.stolen) == (0, 0)


async def test_leases_are_kept_while_a_stopping_worker_waits(queue: AsyncQueue, working: Any, until: Any) -> None:
    began: list[int] = []

    @queue.task("a")
    async def handle() -> None:
        began.append(current().attempt)
        await asyncio.sleep(THREE_LEASES)

    await handle.send()
    async with working(queue, lease=LEASE, grace="10s") as worker:
        await until(lambda: began == [1])
        async with Thief(queue, "a") as thief:
            await worker.stop()

    assert thief.stolen == 0
    assert (await queue.stats("a")).pending == 0


async def test_an_async_handler_whose_lease_was_lost_is_cancelled_and_not_heard(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    told: list[bool] = []

    @queue.task("a")
    async def handle() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(current().expired)  # and it returns, as if all were well

    await handle.send()
    async with working(queue, lease=LEASE, concurrency=1) as worker:  # it has no place to take the message itself
        await until(lambda: worker.health().running == 1)
        faults.lose_leases()
        taken = await taken_by_hand(queue, "a")
        faults.keep_leases()
        await until(lambda: told == [True])
        await until(lambda: worker.health().running == 0)
        assert worker.health().done == 0
        await taken.extend("30s")  # the other one's lease is not touched
        await taken.ack()

    assert taken.attempt == 2
    assert caplog.text.count("The lease of message") == 1
    assert taken.id in caplog.text


async def test_a_sync_handler_whose_lease_was_lost_can_see_it_and_is_not_heard(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    saw = threading.Event()

    @queue.task("s")
    def handle() -> None:
        while not current().expired:
            time.sleep(0.01)
        saw.set()

    await handle.send()
    async with working(queue, lease=LEASE, concurrency=1) as worker:  # it has no place to take the message itself
        await until(lambda: worker.health().running == 1)
        faults.lose_leases()
        taken = await taken_by_hand(queue, "s")
        assert not saw.is_set()
        faults.keep_leases()
        await until(saw.is_set)
        await until(lambda: worker.health().running == 0)
        assert worker.health().done == 0
        await taken.ack()

    assert taken.attempt == 2
    assert caplog.text.count("The lease of message") == 1


async def test_a_message_that_somebody_else_ended_frees_its_place(
    queue: AsyncQueue, working: Any, until: Any, caplog: Any
) -> None:
    began: list[tuple[str, str]] = []
    failed: list[BaseException] = []

    @queue.task("a")
    async def handle(last: bool) -> None:
        began.append((current().id, current().token))
        if not last:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                failed.append(error)
                raise ValueError("nobody hears this") from None

    await handle.send(False)
    async with working(queue, lease=LEASE, concurrency=1) as worker:
        await until(lambda: len(began) == 1)
        engine = await queue.session.engine()
        assert await engine.settle([End("a", *began[0], "done")]) == ["done"]
        await handle.send(True)
        await until(lambda: worker.health().done == 1)

    assert len(failed) == 1
    assert "The lease of message" in caplog.text
    assert (await queue.stats("a")).pending == 0
    assert (await queue.stats("a")).dead == 0


async def test_an_ack_that_comes_too_late_is_said_so(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    let_go = asyncio.Event()

    @queue.task("a")
    async def handle() -> None:
        await let_go.wait()

    await handle.send()
    async with working(queue, lease=LEASE, concurrency=1) as worker:  # it has no place to take the message itself
        await until(lambda: worker.health().running == 1)
        faults.lose_leases()
        taken = await taken_by_hand(queue, "a")
        let_go.set()
        await until(lambda: worker.health().running == 0)
        await taken.ack()

    assert "The lease of message" in caplog.text


async def test_an_async_handler_may_go_on_after_its_own_ack(queue: AsyncQueue, working: Any, until: Any, caplog: Any) -> None:
    went_on = asyncio.Event()

    @queue.task("a")
    async def handle() -> None:
        await current().ack()
        await asyncio.sleep(THREE_LEASES)
        went_on.set()

    await handle.send()
    async with working(queue, lease=LEASE) as worker:
        await until(went_on.is_set)
        await until(lambda: worker.health().running == 0)

    assert "was lost" not in caplog.text


async def test_a_sync_handler_may_go_on_after_its_own_ack(queue: AsyncQueue, working: Any, until: Any, caplog: Any) -> None:
    expired: list[bool] = []

    @queue.task("s")
    def handle() -> None:
        current().ack()
        time.sleep(THREE_LEASES)
        expired.append(current().expired)

    await handle.send()
    async with working(queue, lease=LEASE) as worker:
        await until(lambda: expired == [False])
        await until(lambda: worker.health().running == 0)

    assert "was lost" not in caplog.text


async def test_a_handlers_own_ack_whose_answer_is_late_is_not_taken_for_a_lost_lease(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    went_on = asyncio.Event()

    async def late(call: Any, asked: Any) -> Any:
        answers = await call()
        await asyncio.sleep(THREE_LEASES)
        return answers

    faults.around["settle"] = late

    @queue.task("a")
    async def handle() -> None:
        await current().ack()
        went_on.set()

    await handle.send()
    async with working(queue, lease=LEASE) as worker:
        await until(went_on.is_set)
        await until(lambda: worker.health().running == 0)

    assert "was lost" not in caplog.text


async def test_an_ack_whose_answer_is_late_is_not_taken_for_a_lost_lease(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, caplog: Any
) -> None:
    settled = asyncio.Event()

    async def late(call: Any, asked: Any) -> Any:
        answers = await call()
        await asyncio.sleep(THREE_LEASES)
        settled.set()
        return answers

    faults.around["settle"] = late

    @queue.task("a")
    async def handle() -> None:
        pass

    await handle.send()
    async with working(queue, lease=LEASE) as worker:
        await until(settled.is_set)
        await until(lambda: worker.health().running == 0)
        assert worker.health().done == 1

    assert "was lost" not in caplog.text


async def test_a_heartbeat_that_fails_for_less_than_a_lease_loses_nothing(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults
) -> None:
    attempts: list[int] = []
    failures: list[int] = []

    def cut_once(call: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            raise Unavailable("the wire is cut")
        return call()

    @queue.task("a")
    async def handle() -> None:
        attempts.append(current().attempt)
        await asyncio.sleep(3 * THREE_LEASES / 2)

    faults.beat["extend"] = cut_once
    await handle.send()
    async with working(queue, lease="600ms"):
        await until(lambda: attempts)
        async with Thief(queue, "a") as thief:
            await until(lambda: ended(queue))

    assert len(failures) == 2
    assert attempts == [1]
    assert thief.stolen == 0


@pytest.mark.parametrize(
    ("verb", "error"),
    [("open", Unavailable("not now")), ("extend", RuntimeError("what nobody had thought of")), ("extend", SystemExit(3))],
    ids=repr,
)
async def test_a_heartbeat_that_breaks_down_begins_anew_while_its_handlers_run(
    queue: AsyncQueue, working: Any, until: Any, faults: Faults, verb: str, error: BaseException
) -> None:
    attempts: list[int] = []
    failures: list[int] = []

    def break_once(call: Any) -> Any:
        if not failures:
            failures.append(1)
            raise error
        return call()

    @queue.task("a")
    async def handle() -> None:
        attempts.append(current().attempt)
        await asyncio.sleep(3 * THREE_LEASES / 2)

    faults.beat[verb] = break_once
    await handle.send()
    async with working(queue, lease="600ms"):
        await until(lambda: attempts)
        async with Thief(queue, "a") as thief:
            await until(lambda: ended(queue))

    assert failures
    assert attempts == [1]
    assert thief.stolen == 0
