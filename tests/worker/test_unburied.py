"""What a worker does with messages whose last attempt killed another process, and what the supervisor does until then."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bide import AsyncQueue, Bury, Unavailable
from bide.worker import Worker, recovery
from bide.worker.claim_log import ClaimLog
from bide.worker.recovery import PROCESSES, Killed, Unburied, handed_over, taken_over
from tests.worker.faults import Faults
from tests.worker.test_running import ended

REASON = "worker process 7 was killed"


async def died(queue: AsyncQueue, *topics: str, told: Sequence[str] = ("a",), lease: int = 3_600_000) -> Unburied:
    """A process has claimed these messages and died, and what need not be told was given back."""
    engine = await queue.session.engine()
    claim_log = ClaimLog.new(10)
    slot, request = claim_log.begin()
    claim = await engine.claim(list(topics), 100, lease, request=request)
    claim_log.hold(slot, len(claim.messages))
    unburied = Unburied(engine, told, lease)
    await recovery.give_back(engine, claim_log, REASON, unburied=unburied)
    return unburied


def following(queue: AsyncQueue, unburied: Unburied, **options: Any) -> Worker:
    return Worker(queue, **{"grace": 0, **options}).changed(killed=tuple(unburied))


async def test_they_are_told_and_buried_and_everything_else_is_given_back(queue: AsyncQueue, until: Any, coloured: Any) -> None:
    told: list[tuple[int, str]] = []
    called: list[int] = []

    @queue.task("a", on_dead=lambda delivery, reason: told.append((delivery.body["n"], reason)))
    @coloured
    def a(n: int) -> None:
        called.append(n)

    for n in range(3):
        await queue.send("a", {"n": n}, max_attempts=1)
    await queue.send("a", {"n": 3}, max_attempts=2)
    await queue.send("silent", {}, max_attempts=1)
    unburied = await died(queue, "a", "silent")

    assert [each.reason for each in unburied] == [REASON]
    assert (await queue.stats("silent")).dead == 1
    assert (await queue.stats("a")).leased == 3
    async with following(queue, unburied):
        await until(lambda: ended(queue))

    assert sorted(told) == [(0, REASON), (1, REASON), (2, REASON)]
    assert called == [3]
    dead = await queue.messages("a", state="dead")
    assert [(each.attempt, each.last_error) for each in dead] == [(1, REASON)] * 3


async def test_a_stop_meanwhile_buries_them_and_releases_none(queue: AsyncQueue, soon: Any) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def waits(delivery: Any, reason: str) -> None:
        began.set()
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @queue.task("a", on_dead=waits)
    async def a() -> None:
        raise AssertionError("was called")

    await queue.send("a", {}, max_attempts=1)
    unburied = await died(queue, "a")
    async with following(queue, unburied):
        await soon(began.wait())

    assert cancelled.is_set()
    [dead] = await queue.messages("a", state="dead")
    assert dead.last_error == REASON


async def test_what_the_new_process_has_no_task_for_is_buried_without(queue: AsyncQueue, until: Any) -> None:
    @queue.task("b")
    async def b() -> None: ...

    await queue.send("a", {}, max_attempts=1)
    unburied = await died(queue, "a")
    async with following(queue, unburied):
        await until(lambda: ended(queue))

    [dead] = await queue.messages("a", state="dead")
    assert dead.last_error == REASON


@pytest.mark.parametrize("url", ["memory"], indirect=True)
async def test_a_part_of_the_engine_that_does_not_answer_is_asked_again_and_holds_up_nothing(
    queue: AsyncQueue, until: Any
) -> None:
    told: list[int] = []
    called: list[int] = []

    @queue.task("a", on_dead=lambda delivery, reason: told.append(delivery.body["n"]))
    async def a(n: int) -> None:
        called.append(n)

    for n in range(2):
        await queue.send("a", {"n": n}, max_attempts=1)
    unburied = await died(queue, "a")
    names = {each.request for each in unburied}
    faults, asked = await Faults.of(queue), list[int]()

    async def half(call: Callable[[], Awaitable[Any]], given: Sequence[Any]) -> Any:
        claim = await call()
        if given[0] or len(asked) >= 2 or not claim.messages:
            return claim
        asked.append(len(claim.messages))
        return replace(claim, messages=claim.messages[:1], more=True) if len(asked) == 1 else claim

    faults.around["claim"] = half
    await queue.send("a", {"n": 2})
    async with following(queue, unburied):
        await until(lambda: ended(queue))

    assert len(names) == 1
    assert sorted(told) == [0, 1]
    assert called == [2]
    assert (await queue.stats("a")).dead == 2


@pytest.mark.parametrize("url", ["memory"], indirect=True)
async def test_while_the_engine_fails_it_is_tried_again_and_told_once(queue: AsyncQueue, until: Any) -> None:
    told: list[str] = []

    @queue.task("a", on_dead=lambda delivery, reason: told.append(reason))
    async def a() -> None:
        raise Bury

    await queue.send("a", {}, max_attempts=1)
    unburied = await died(queue, "a")
    faults = await Faults.of(queue)
    claims, ends = faults.fail("claim", times=2), faults.fail("settle", times=2)
    async with following(queue, unburied):
        await until(lambda: ended(queue))

    assert (len(claims), len(ends)) == (2, 2)
    assert told == [REASON]


async def test_after_so_many_processes_the_supervisor_buries(queue: AsyncQueue) -> None:
    await queue.send("a", {}, max_attempts=1)
    unburied = await died(queue, "a")
    assert [await unburied.one_more_died() for _ in range(PROCESSES)] == [*[0] * (PROCESSES - 1), 1]
    assert not list(unburied)
    [dead] = await queue.messages("a", state="dead")
    assert (dead.attempt, dead.last_error) == (1, REASON)


@pytest.mark.parametrize("url", ["sqlite", pytest.param("redis", marks=pytest.mark.server)], indirect=True)
async def test_their_leases_are_renewed_until_they_are_buried(queue: AsyncQueue, until: Any) -> None:
    await queue.send("a", {}, max_attempts=1)
    unburied = await died(queue, "a", lease=2_000)
    renewing = asyncio.create_task(unburied.keep())
    [held] = await queue.messages("a")
    first = held.lease_until or 0

    async def later() -> bool:
        [info] = await queue.messages("a")
        return info.state == "leased" and info.lease_until is not None and info.lease_until > first + 2_000

    await until(later)
    await unburied.bury_all()
    renewing.cancel()
    assert (await queue.stats("a")).dead == 1


@pytest.mark.parametrize("url", ["memory"], indirect=True)
async def test_an_engine_that_fails_at_the_end_leaves_it_to_the_end_of_the_lease(queue: AsyncQueue, caplog: Any) -> None:
    await queue.send("a", {}, max_attempts=1)
    unburied = await died(queue, "a")
    faults = await Faults.of(queue)
    faults.fail("settle", error=Unavailable("not now"))
    unburied._engine = faults.aio()
    await unburied._engine.open()
    assert await unburied.bury_all() == 0
    assert "the engine does when the lease ends. not now" in caplog.text
    assert (await queue.stats("a")).leased == 1


def test_what_is_handed_over_is_read_once() -> None:
    killed = (Killed("4242/0a.1", REASON), Killed("4242/0a.2", "é"))
    assert taken_over(handed_over(killed)) == killed
