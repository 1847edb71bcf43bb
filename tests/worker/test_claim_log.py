"""The claim_log: what a worker process wrote there is read by its supervisor, whatever became of the process."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bide import AsyncQueue, Unavailable
from bide.engines.base import MAX_BATCH
from bide.ids import process_name, worker_of
from bide.worker import Worker, recovery
from bide.worker.claim_log import ClaimLog, Health
from tests.worker.faults import Faults
from tests.worker.test_running import ended


def other_side(claim_log: ClaimLog) -> ClaimLog:
    """As the other process opens it."""
    return ClaimLog(os.dup(claim_log.file))


def test_a_new_one_holds_nothing_and_nobody_was_seen() -> None:
    claim_log = ClaimLog.new(10)

    assert list(claim_log.requests()) == []
    assert claim_log.health() == Health()
    claim_log.close()


def test_a_claim_is_written_down_before_it_is_made_and_read_by_the_other_side() -> None:
    theirs = ClaimLog.new(10)
    ours = other_side(theirs)

    slot, request = ours.begin()

    assert list(theirs.requests()) == [request]
    assert worker_of(request) == process_name(os.getpid())
    ours.hold(slot, 2)
    ours.let_go(slot)
    assert list(theirs.requests()) == [request]
    ours.let_go(slot)
    assert list(theirs.requests()) == []


def test_a_claim_that_brought_nothing_is_forgotten() -> None:
    claim_log = ClaimLog.new(10)

    slot, _ = claim_log.begin()
    claim_log.hold(slot, 0)

    assert list(claim_log.requests()) == []


def test_a_claim_that_waits_is_one_of_those_that_hold_something_until_it_begins() -> None:
    theirs = ClaimLog.new(10)
    ours = other_side(theirs)
    (first, begun), (second, waiting) = ours.begin(), ours.begin()
    for slot in (first, second):
        ours.hold(slot, 2)

    ours.waits(second)

    assert (theirs.requests(), theirs.waiting()) == ([begun, waiting], [waiting])
    ours.begins(second)
    assert (theirs.requests(), theirs.waiting()) == ([begun, waiting], [])
    ours.waits(second)
    ours.let_go(second, 2)
    assert (theirs.requests(), theirs.waiting()) == ([begun], [])


def test_a_claim_that_is_made_ahead_waits_from_the_start() -> None:
    claim_log = ClaimLog.new(10)
    slot, request = claim_log.begin(ahead=True)
    assert claim_log.waiting() == [request] == claim_log.requests()
    claim_log.begins(slot)
    assert (claim_log.waiting(), claim_log.requests()) == ([], [request])
    claim_log.hold(slot, 0)
    assert claim_log.begin()[0] == slot
    assert claim_log.waiting() == []


def test_names_are_never_used_twice_by_any_claim_log() -> None:
    names: list[str] = []
    for _ in range(20):
        claim_log = ClaimLog.new(5)
        for _ in range(50):
            slot, name = claim_log.begin()
            names.append(name)
            claim_log.hold(slot, 0)
        claim_log.close()

    assert len(set(names)) == 1_000
    assert all(len(name) <= 128 and name.isprintable() for name in names)


def test_health_is_read_as_it_was_told() -> None:
    theirs = ClaimLog.new(10)
    ours = other_side(theirs)
    health = Health(12.5, 3.25, 1, 2**40, 3, 4)
    slot, request = ours.begin()

    ours.tell(health)

    assert theirs.health() == health
    assert list(theirs.requests()) == [request]  # its name is still the same
    ours.hold(slot, 0)


def test_there_is_room_for_as_many_claims_as_batches_can_hold() -> None:
    claim_log = ClaimLog.new()

    names = [claim_log.begin()[1] for _ in range(100 * 100 + 2 * MAX_BATCH)]

    assert claim_log.room()
    assert sorted(other_side(claim_log).requests()) == sorted(names)


def test_one_that_is_full_has_no_room_until_a_claim_is_forgotten() -> None:
    claim_log = ClaimLog.new(10)
    slots = [claim_log.begin()[0] for _ in range(10)]

    assert not claim_log.room()
    claim_log.hold(slots[3], 0)
    assert claim_log.room()
    assert claim_log.begin()[0] == slots[3]
    assert not claim_log.room()


def test_what_a_killed_process_wrote_is_read() -> None:
    claim_log = ClaimLog.new(10)
    code = (
        "import os, signal, sys; from bide.worker.claim_log import Health, ClaimLog;"
        "claim_log = ClaimLog(int(sys.argv[1])); claim_log.tell(Health(seen=1.5)); print(claim_log.begin()[1], flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )

    died = subprocess.run(
        [sys.executable, "-c", code, str(claim_log.file)], stdout=subprocess.PIPE, check=False, pass_fds=[claim_log.file]
    )

    assert died.returncode == -9
    assert list(claim_log.requests()) == [died.stdout.decode().strip()]
    assert claim_log.health().seen == 1.5


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_it_holds_the_claims_that_are_open_and_no_others(data: st.DataObject) -> None:
    ours = ClaimLog.new(40)
    theirs = other_side(ours)
    open_claims: dict[str, tuple[int, int]] = {}
    for _ in range(data.draw(st.integers(1, 40))):
        back: bool = data.draw(st.booleans())
        if open_claims and back:
            name: str = data.draw(st.sampled_from(sorted(open_claims)))
            slot, left = open_claims.pop(name)
            ours.let_go(slot)
            if left > 1:
                open_claims[name] = (slot, left - 1)
        else:
            slot, name = ours.begin()
            count = data.draw(st.integers(0, 3))
            ours.hold(slot, count)
            if count:
                open_claims[name] = (slot, count)
        assert sorted(theirs.requests()) == sorted(open_claims)
    theirs.close()
    ours.close()


async def test_a_worker_writes_down_what_it_holds(queue: AsyncQueue, until: Any) -> None:
    let_go = asyncio.Event()

    @queue.task("a")
    async def handle() -> None:
        await let_go.wait()

    claim_log = ClaimLog.new(10)
    await queue.send_many("a", [{}] * 5)
    worker = Worker(queue, concurrency=10).changed(claim_log=other_side(claim_log))
    async with worker:
        await until(lambda: worker.health().running == 5)
        await until(lambda: len(claim_log.requests()) == 1)
        await queue.send("a", {})
        await until(lambda: worker.health().running == 6)
        await until(lambda: len(claim_log.requests()) == 2)  # it may just be asking for more
        assert claim_log.health().seen > 0
        let_go.set()
        await until(lambda: ended(queue))
        await until(lambda: not claim_log.requests())


async def test_a_worker_whose_claim_log_is_full_goes_on_when_there_is_room(queue: AsyncQueue, until: Any) -> None:
    let_go, done = asyncio.Event(), list[int]()

    @queue.task("a", batch=100, linger="1h")
    async def gather(items: list[int]) -> None:
        done.extend(items)

    @queue.task("b")
    async def wait(n: int) -> None:
        await let_go.wait()
        done.append(n)

    claim_log = ClaimLog.new(10)
    worker = Worker(queue).changed(claim_log=other_side(claim_log))
    async with worker:
        for n in range(10):  # each comes by itself, and holds a claim
            await (queue.send("b", {"n": n}) if n < 3 else queue.send("a", n))
            await until(lambda: worker.health().running == n + 1)  # noqa: B023  # it is awaited at once
        assert len(claim_log.requests()) == 10
        for n in range(10, 103):
            await queue.send("a", n)
        let_go.set()
        await until(lambda: ended(queue))
    assert sorted(done) == list(range(103))
    assert list(claim_log.requests()) == []


async def test_what_a_dead_process_held_is_given_back_at_once(queue: AsyncQueue) -> None:
    claim_log = ClaimLog.new(10)
    engine = await queue.session.engine()
    await queue.send_many("a", [{}] * 5)
    slot, request = claim_log.begin()
    claim = await engine.claim(["a"], 5, 3_600_000, request=request)
    assert len(claim.messages) == 5
    claim_log.hold(slot, 5)

    given = await recovery.give_back(engine, claim_log, "worker process 7 was killed")

    assert given == 5
    left = await queue.messages("a")
    assert {(each.state, each.attempt, each.last_error) for each in left} == {("ready", 1, "worker process 7 was killed")}


async def test_the_last_attempt_of_a_dead_process_buries_with_the_reason(queue: AsyncQueue) -> None:
    claim_log = ClaimLog.new(10)
    engine = await queue.session.engine()
    await queue.send("a", {}, max_attempts=1)
    slot, request = claim_log.begin()
    await engine.claim(["a"], 5, 3_600_000, request=request)
    claim_log.hold(slot, 1)

    await recovery.give_back(engine, claim_log, "worker process 7 was killed")

    [dead] = await queue.messages("a", state="dead")
    assert dead.last_error == "worker process 7 was killed"


@pytest.mark.parametrize("attempts", [1, 2])
async def test_what_waited_for_other_handlers_of_a_dead_process_has_had_no_attempt(queue: AsyncQueue, attempts: int) -> None:
    claim_log = ClaimLog.new(10)
    engine = await queue.session.engine()
    for topic in ("begun", "waits"):
        for _ in range(3):
            await queue.send(topic, {}, max_attempts=attempts)
        slot, request = claim_log.begin()
        await engine.claim([topic], 3, 3_600_000, request=request)
        claim_log.hold(slot, 3)
    claim_log.waits(slot)

    assert await recovery.give_back(engine, claim_log, "it was killed") == 6

    begun = {(each.state, each.attempt, each.last_error) for each in await queue.messages("begun")}
    assert begun == {("dead" if attempts == 1 else "ready", 1, "it was killed")}
    waited = {(each.state, each.attempt, each.last_error) for each in await queue.messages("waits")}
    assert waited == {("ready", 0, None)}


async def test_giving_back_goes_on_until_all_parts_of_the_engine_have_answered(queue: AsyncQueue) -> None:
    claim_log = ClaimLog.new(10)
    await queue.send_many("a", [{}] * 2)
    engine = await queue.session.engine()
    slot, request = claim_log.begin()
    await engine.claim(["a"], 2, 3_600_000, request=request)
    claim_log.hold(slot, 2)
    faults, asked = Faults(queue), list[int]()

    async def half(call: Callable[[], Awaitable[Any]], _: object) -> Any:
        claim = await call()
        asked.append(len(claim.messages))
        return replace(claim, messages=claim.messages[:1], more=True) if len(asked) == 1 else claim

    faults.around["claim"] = half
    failing = faults.aio()
    await failing.open()
    assert await recovery.give_back(failing, claim_log, "it died") == 2
    await failing.close()
    assert asked == [2, 1]


@pytest.mark.parametrize("error", [Unavailable("not now"), RuntimeError("what nobody had thought of")], ids=repr)
async def test_giving_back_goes_on_while_the_engine_fails_for_a_moment(queue: AsyncQueue, error: Exception) -> None:
    claim_log = ClaimLog.new(10)
    await queue.send("a", {})
    engine = await queue.session.engine()
    slot, request = claim_log.begin()
    await engine.claim(["a"], 1, 3_600_000, request=request)
    claim_log.hold(slot, 1)
    faults = Faults(queue)
    failures = faults.fail("settle", times=2, error=error)
    failing = faults.aio()
    await failing.open()

    given = await recovery.give_back(failing, claim_log, "it died")
    await failing.close()

    assert len(failures) == 2
    assert given == 1
    assert (await queue.stats("a")).ready == 1


def test_a_claim_log_takes_little_room() -> None:
    claim_log = ClaimLog.new()

    assert os.fstat(claim_log.file).st_blocks * 512 <= 65_536
    claim_log.close()
