"""A worker's day: handlers of both colours are called, no more at once than allowed, and what they say is heard."""

import asyncio
import contextvars
import logging
import threading
from collections import Counter
from typing import Any

import pytest

from bide import AsyncQueue, Bury, Retry, Snooze, current, steps
from bide.worker import Worker
from bide.worker.slots import AHEAD
from tests.worker.conftest import done

NOW = steps("0ms")


async def ended(queue: Any) -> bool:
    """Nothing is left but dead letters."""
    stats = await done(queue.stats())
    return not (stats.ready or stats.leased or stats.scheduled)


async def test_handlers_of_both_colours_are_called_with_what_was_sent(either: Any, working: Any, until: Any) -> None:
    seen: list[tuple[str, int, bool]] = []
    loop_thread = threading.get_ident()

    @either.task("a")
    async def in_loop(number: int) -> None:
        seen.append(("a", number, threading.get_ident() == loop_thread))

    @either.task("s")
    def in_thread(number: int) -> None:
        seen.append(("s", number, threading.get_ident() == loop_thread))

    for number in range(5):
        await done(in_loop.send(number))
        await done(in_thread.send(number=number))
    async with working(either) as worker:
        await until(lambda: ended(either))
        await until(lambda: worker.health().done == 10)

    assert sorted(seen) == sorted([("a", n, True) for n in range(5)] + [("s", n, False) for n in range(5)])
    assert (await done(either.stats())).dead == 0


async def test_what_is_sent_while_the_worker_sleeps_is_handled_too(queue: AsyncQueue, working: Any, soon: Any) -> None:
    handled = asyncio.Queue[int]()

    @queue.task("a")
    async def handle(number: int) -> None:
        handled.put_nowait(number)

    async with working(queue):
        for number in range(3):
            await handle.send(number)
            assert await soon(handled.get()) == number
        await handle.after("50ms").send(9)
        assert await soon(handled.get()) == 9


async def test_no_more_handlers_run_than_concurrency_and_threads_allow(queue: AsyncQueue, working: Any, until: Any) -> None:
    running, most, lock = Counter[str](), Counter[str](), threading.Lock()

    def enter(kind: str) -> None:
        with lock:
            running.update([kind, "all"])
            most[kind] = max(most[kind], running[kind])
            most["all"] = max(most["all"], running["all"])

    def leave(kind: str) -> None:
        with lock:
            running.subtract([kind, "all"])

    @queue.task("a")
    async def in_loop() -> None:
        enter("a")
        await asyncio.sleep(0.002)
        leave("a")

    @queue.task("s")
    def in_thread() -> None:
        enter("s")
        threading.Event().wait(0.002)
        leave("s")

    await queue.send_many("a", [{}] * 100)
    await queue.send_many("s", [{}] * 100)
    async with working(queue, concurrency=8, threads=3):
        await until(lambda: ended(queue))

    assert most["all"] <= 8
    assert most["s"] <= 3
    assert most["s"] > 1
    assert most["a"] > 1


async def test_no_more_is_claimed_than_there_are_places(queue: AsyncQueue, working: Any, until: Any) -> None:
    let_go = asyncio.Semaphore(0)
    begun = 0

    @queue.task("a")
    async def handle() -> None:
        nonlocal begun
        begun += 1
        await let_go.acquire()

    async def leased(number: int) -> bool:
        return (await queue.stats("a")).leased == number

    await queue.send_many("a", [{}] * 50)
    async with working(queue, concurrency=7):
        for round_ in range(3):
            await until(lambda: begun == 7 * (round_ + 1))  # noqa: B023
            await until(lambda: leased(7))
            assert (await queue.stats("a")).ready == 50 - begun
            for _ in range(7):
                let_go.release()


async def test_an_ack_on_its_way_does_not_hold_a_place(queue: AsyncQueue, working: Any, until: Any, faults: Any) -> None:
    answer = asyncio.Event()
    begun = 0

    async def slow(call: Any, asked: Any) -> Any:
        await answer.wait()
        return await call()

    faults.around["settle"] = slow

    @queue.task("a")
    async def handle() -> None:
        nonlocal begun
        begun += 1

    await queue.send_many("a", [{}] * 30)
    async with working(queue, concurrency=4):
        await until(lambda: begun == 30)
        assert (await queue.stats("a")).leased == 30
        answer.set()
        await until(lambda: ended(queue))


async def test_acks_that_the_engine_does_not_answer_hold_claims_back_in_the_end(
    memory: AsyncQueue, working: Any, until: Any
) -> None:
    from tests.worker.faults import Faults

    faults = await Faults.of(memory)
    answer = asyncio.Event()
    begun = 0

    async def slow(call: Any, asked: Any) -> Any:
        await answer.wait()
        return await call()

    faults.around["settle"] = slow

    @memory.task("a")
    async def handle() -> None:
        nonlocal begun
        begun += 1

    for _ in range(5):
        await memory.send_many("a", [{}] * 1_000)
    async with working(memory, concurrency=50):
        await until(lambda: begun >= 1_000)
        for _ in range(100):
            await asyncio.sleep(0)
        assert (await memory.stats("a")).leased <= 2_000 + 2 * AHEAD  # one claim more, and what is under way
        answer.set()
        await until(lambda: ended(memory))

    assert begun == 5_000


async def test_a_failed_attempt_is_followed_by_another_after_the_tasks_backoff(
    queue: AsyncQueue, working: Any, until: Any, caplog: Any, coloured: Any
) -> None:
    waits: list[int] = []
    attempts: list[int] = []

    def backoff(attempt: int) -> str:
        waits.append(attempt)
        return "30ms"

    @queue.task("a", backoff=backoff, max_attempts=3)
    @coloured
    def handle() -> None:
        attempts.append(current().attempt)
        if current().attempt < 3:
            raise ValueError("not yet")

    await handle.send()
    async with working(queue) as worker:
        await until(lambda: ended(queue))
        await until(lambda: worker.health().done == 1)
        assert worker.health().failed == 2

    assert attempts == [1, 2, 3]
    assert waits == [1, 2]
    assert (await queue.stats()).dead == 0
    assert "failed in attempt 1 of 3" in caplog.text
    assert "ValueError: not yet" in caplog.text


async def test_the_last_attempt_buries_with_the_error(queue: AsyncQueue, working: Any, until: Any, coloured: Any) -> None:
    @queue.task("a", backoff=NOW, max_attempts=2)
    @coloured
    def handle() -> None:
        raise KeyError("where is it")

    await handle.send()
    async with working(queue):
        await until(lambda: ended(queue))

    [dead] = await queue.messages("a", state="dead")
    assert dead.last_error == "KeyError: 'where is it'"
    assert dead.attempt == 2


async def test_retry_snooze_and_bury_are_obeyed(queue: AsyncQueue, working: Any, until: Any, coloured: Any) -> None:
    seen: list[tuple[str, int]] = []

    @queue.task("a", max_attempts=3)
    @coloured
    def handle(what: str) -> None:
        times = sum(each == what for each, _ in seen)
        seen.append((what, current().attempt))
        if what == "retry" and not times:
            raise Retry("10ms")
        if what == "snooze" and times < 4:
            raise Snooze("10ms")
        if what == "bury":
            raise Bury("it was wrong")

    for what in ("retry", "snooze", "bury"):
        await handle.send(what)
    async with working(queue):
        await until(lambda: ended(queue))

    assert [attempt for what, attempt in seen if what == "retry"] == [1, 2]
    assert [attempt for what, attempt in seen if what == "snooze"] == [1] * 5
    [dead] = await queue.messages("a", state="dead")
    assert dead.last_error == "it was wrong"
    assert dead.attempt == 1


async def test_wrong_arguments_are_buried_at_once_with_a_sentence(queue: AsyncQueue, working: Any, until: Any) -> None:
    called = []

    @queue.task("a", max_attempts=5)
    async def handle(order: int) -> None:
        called.append(order)

    await queue.send("a", {"order": "many"})
    await queue.send("a", ["no", "object"])
    await handle.send(7)
    async with working(queue):
        await until(lambda: ended(queue))

    assert called == [7]
    dead = await queue.messages("a", state="dead")
    assert len(dead) == 2
    for each in dead:
        assert each.attempt == 1
        assert "handle(order: int)" in str(each.last_error)
        assert "can't take this message" in str(each.last_error)


@pytest.mark.parametrize("how", ["ack", "retry", "release", "bury"])
async def test_an_async_handler_may_end_its_delivery_itself(queue: AsyncQueue, working: Any, until: Any, how: str) -> None:
    attempts: list[int] = []

    @queue.task("a")
    async def handle() -> None:
        attempts.append(current().attempt)
        if len(attempts) == 1:
            await {
                "ack": lambda: current().ack(),
                "retry": lambda: current().retry("1ms", error="by hand"),
                "release": lambda: current().release("1ms"),
                "bury": lambda: current().bury("by hand"),
            }[how]()
            raise ValueError("nobody hears this")

    await handle.send()
    async with working(queue):
        await until(lambda: ended(queue))

    assert attempts == {"ack": [1], "retry": [1, 2], "release": [1, 1], "bury": [1]}[how]
    dead = await queue.messages("a", state="dead")
    assert [each.last_error for each in dead] == (["by hand"] if how == "bury" else [])


@pytest.mark.parametrize("how", ["ack", "retry", "release", "bury"])
async def test_a_sync_handler_may_end_its_delivery_itself(either: Any, working: Any, until: Any, how: str) -> None:
    attempts: list[int] = []

    @either.task("a")
    def handle() -> None:
        attempts.append(current().attempt)
        if len(attempts) == 1:
            {
                "ack": lambda: current().ack(),
                "retry": lambda: current().retry("1ms", error="by hand"),
                "release": lambda: current().release("1ms"),
                "bury": lambda: current().bury("by hand"),
            }[how]()
            raise ValueError("nobody hears this")

    await done(handle.send())
    async with working(either):
        await until(lambda: ended(either))

    assert attempts == {"ack": [1], "retry": [1, 2], "release": [1, 1], "bury": [1]}[how]
    dead = await done(either.messages("a", state="dead"))
    assert [each.last_error for each in dead] == (["by hand"] if how == "bury" else [])


async def test_current_is_the_handlers_own_delivery_among_a_hundred(queue: AsyncQueue, working: Any, until: Any) -> None:
    wrong: list[Any] = []
    all_here = asyncio.Barrier(100)

    @queue.task("a")
    async def handle(key: str) -> None:
        for _ in range(3):
            await all_here.wait()
            if current().key != key or current().topic != "a":
                wrong.append((key, current().key))

    for number in range(100):
        await handle.options(key=f"k{number}").send(f"k{number}")
    async with working(queue, concurrency=100):
        await until(lambda: ended(queue))

    assert wrong == []


async def test_current_is_the_handlers_own_delivery_in_threads(queue: AsyncQueue, working: Any, until: Any) -> None:
    wrong: list[Any] = []
    all_here = threading.Barrier(10)

    @queue.task("s")
    def handle(key: str) -> None:
        all_here.wait(20)
        if current().key != key:
            wrong.append((key, current().key))

    for number in range(30):
        await handle.options(key=f"k{number}").send(f"k{number}")
    async with working(queue, threads=10):
        await until(lambda: ended(queue))

    assert wrong == []


async def test_what_a_handler_sets_in_its_context_is_not_seen_by_the_next(
    memory: AsyncQueue, working: Any, until: Any, coloured: Any
) -> None:
    mark: contextvars.ContextVar[int] = contextvars.ContextVar("mark", default=0)
    seen: list[int] = []

    @memory.task("a")
    @coloured
    def handle() -> None:
        seen.append(mark.get())
        mark.set(1)

    await memory.send_many("a", [{}] * 20)
    async with working(memory, concurrency=2):
        await until(lambda: ended(memory))

    assert seen == [0] * 20


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (asyncio.CancelledError("by itself"), "CancelledError: by itself"),
        (SystemExit(3), "SystemExit: 3"),
        (BaseExceptionGroup("several", [SystemExit(1), ValueError("two")]), "BaseExceptionGroup: several (2 sub-exceptions)"),
        (StopIteration("over"), "RuntimeError"),
        (StopAsyncIteration("over"), "StopAsyncIteration: over"),
        (RecursionError("deep"), "RecursionError: deep"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_a_handler_raises_is_a_failed_attempt_and_frees_its_place(
    queue: AsyncQueue, working: Any, until: Any, coloured: Any, raised: BaseException, text: str
) -> None:
    @queue.task("bad", max_attempts=2, backoff=NOW)
    @coloured
    def bad() -> None:
        raise raised

    @queue.task("good")
    @coloured
    def good() -> None:
        pass

    await queue.send_many("bad", [{}] * 3)
    await queue.send_many("good", [{}] * 3)
    async with working(queue, concurrency=2, threads=2) as worker:
        await until(lambda: ended(queue))
        await until(lambda: worker.health().running == 0)

    dead = await queue.messages("bad", state="dead")
    assert len(dead) == 3
    for each in dead:
        assert str(each.last_error).startswith(text)
        assert each.attempt == 2


async def test_a_sync_task_that_hands_a_coroutine_on_is_not_taken_for_done(
    memory: AsyncQueue, working: Any, until: Any
) -> None:
    async def later() -> None:
        pass

    @memory.task("a", max_attempts=1)
    def handle() -> Any:
        return later()

    await memory.send("a", {})
    async with working(memory):
        await until(lambda: ended(memory))

    [dead] = await memory.messages("a", state="dead")
    assert "returned a coroutine" in str(dead.last_error)


async def test_aliases_are_served_by_their_task(queue: AsyncQueue, working: Any, until: Any) -> None:
    seen: list[str] = []

    @queue.task("new", aliases=["old"])
    async def handle() -> None:
        seen.append(current().topic)

    await queue.send("old", {})
    await queue.send("new", {})
    async with working(queue):
        await until(lambda: ended(queue))

    assert sorted(seen) == ["new", "old"]


async def test_a_worker_serves_the_named_topics_only(queue: AsyncQueue, working: Any, until: Any) -> None:
    seen: list[str] = []

    @queue.task("a")
    async def first() -> None:
        seen.append("a")

    @queue.task("b")
    async def second() -> None:
        seen.append("b")

    await first.send()
    await second.send()
    async with working(queue, topics=["b"]) as worker:
        assert set(worker.tasks()) == {"b"}
        await until(lambda: seen == ["b"])
        await until(lambda: worker.health().running == 0)

    assert (await queue.stats("a")).ready == 1


async def test_a_body_that_cannot_be_read_is_buried_and_the_others_are_handled(
    memory: AsyncQueue, working: Any, until: Any
) -> None:
    from bide.engines.base import NewMessage

    handled: list[int] = []

    @memory.task("a")
    async def handle(number: int) -> None:
        handled.append(number)

    engine = await memory.session.engine()
    for number in range(5):
        await handle.send(number)
        await engine.put([NewMessage("a", b"\xff{")])
    async with working(memory, concurrency=4):
        await until(lambda: ended(memory))

    assert sorted(handled) == list(range(5))
    assert (await memory.stats("a")).dead == 5


async def test_health_tells_how_it_goes(memory: AsyncQueue, working: Any, until: Any) -> None:
    let_go = asyncio.Event()

    @memory.task("a", max_attempts=1)
    async def handle(well: bool) -> None:
        await let_go.wait()
        if not well:
            raise ValueError

    assert Worker(memory).health().running == 0
    await handle.send(True)
    await handle.send(False)
    async with working(memory) as worker:
        await until(lambda: worker.health().running == 2)
        let_go.set()
        await until(lambda: worker.health().running == 0)
        health = worker.health()

    assert (health.done, health.failed) == (1, 1)
    assert health.seen > 0
    assert health.failing_since == 0


async def test_handlers_that_go_well_say_nothing(memory: AsyncQueue, working: Any, until: Any, caplog: Any) -> None:
    @memory.task("a")
    async def handle() -> None:
        pass

    with caplog.at_level(logging.INFO):
        await memory.send_many("a", [{}] * 10)
        async with working(memory):
            await until(lambda: ended(memory))
            assert caplog.records == []


async def test_a_handler_sends_the_next_one_under_its_own_key(queue: AsyncQueue, working: Any, until: Any) -> None:
    outcomes: dict[str, list[str]] = {"loop": [], "thread": []}

    @queue.task("loop")
    async def in_loop(left: int) -> None:
        if left:
            outcomes["loop"].append((await in_loop.options(key="k").send(left - 1)).outcome)

    def thread(left: int) -> None:
        if left:
            outcomes["thread"].append(in_thread.options(key="k").send(left - 1).outcome)

    in_thread = queue.task("thread")(thread).on(queue.sync)
    await in_loop.options(key="k").send(5)
    in_thread.options(key="k").send(5)
    async with working(queue):
        await until(lambda: ended(queue))
    assert outcomes == {"loop": ["created"] * 5, "thread": ["created"] * 5}
