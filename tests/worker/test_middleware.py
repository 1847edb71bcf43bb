"""Middleware: what is called around each handler."""

import asyncio
import contextvars
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from bide import AsyncQueue, Bury, Call, Hook, current, steps
from bide.engines.base import End
from bide.queue.batching import Line
from bide.worker.finish import Settler
from bide.worker.stop import StopWaits
from tests.worker.test_running import ended


async def test_the_first_is_outermost_and_all_see_the_delivery(
    queue: AsyncQueue, working: Any, until: Any, coloured: Any
) -> None:
    order: list[Any] = []

    def named(name: str) -> Any:
        async def middleware(delivery: Any, handle: Any) -> None:
            order.append((name, "in", delivery.key, delivery.topic, delivery.attempt))
            await handle()
            order.append((name, "out"))

        return middleware

    @queue.task("a")
    @coloured
    def handle() -> None:
        order.append("handler")

    await handle.options(key="k").send()
    async with working(queue, middleware=[named("first"), named("second")]):
        await until(lambda: ended(queue))

    assert order == [
        ("first", "in", "k", "a", 1),
        ("second", "in", "k", "a", 1),
        "handler",
        ("second", "out"),
        ("first", "out"),
    ]


async def test_it_may_swallow_what_the_handler_raises(queue: AsyncQueue, working: Any, until: Any, coloured: Any) -> None:
    caught: list[BaseException] = []

    async def forgiving(delivery: Any, handle: Any) -> None:
        try:
            await handle()
        except ValueError as error:
            caught.append(error)

    @queue.task("a")
    @coloured
    def handle() -> None:
        raise ValueError("forgiven")

    await handle.send()
    async with working(queue, middleware=[forgiving]) as worker:
        await until(lambda: ended(queue))
        await until(lambda: worker.health().done == 1)

    assert [str(each) for each in caught] == ["forgiven"]
    assert (await queue.stats("a")).dead == 0


async def test_it_may_raise_in_place_of_the_handler(queue: AsyncQueue, working: Any, until: Any, coloured: Any) -> None:
    handled: list[int] = []

    async def strict(delivery: Any, handle: Any) -> None:
        if delivery.attempt == 1:
            raise ValueError("not at the first attempt")
        raise Bury("never")

    @queue.task("a", backoff=steps("0ms"))
    @coloured
    def handle() -> None:
        handled.append(1)

    await handle.send()
    async with working(queue, middleware=[strict]):
        await until(lambda: ended(queue))

    assert handled == []
    [dead] = await queue.messages("a", state="dead")
    assert (dead.last_error, dead.attempt) == ("never", 2)


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError()], ids=repr)
async def test_whatever_it_raises_ends_an_attempt_and_not_the_worker(
    memory: AsyncQueue, working: Any, until: Any, error: BaseException
) -> None:
    handled: list[int] = []

    async def broken(delivery: Any, handle: Any) -> None:
        if delivery.attempt == 1:
            raise error
        await handle()

    @memory.task("a", backoff=steps("0ms"))
    async def handle() -> None:
        handled.append(current().attempt)

    await handle.send()
    async with working(memory, middleware=[broken]):
        await until(lambda: ended(memory))

    assert handled == [2]


class Exits(Hook):
    """As one that ends the program when its service is down."""

    def __init__(self) -> None:
        self.verbs: set[str] = set()

    def before(self, call: Call) -> None:
        self.verbs.add(call.verb)
        raise SystemExit(3)

    def after(self, call: Call) -> None:
        raise SystemExit(3)


async def test_a_hook_that_wants_to_exit_ends_neither_the_worker_nor_an_attempt(working: Any, until: Any) -> None:
    """It is called in the loop, where a SystemExit would end it."""
    hook = Exits()
    queue = AsyncQueue("memory://", hooks=[hook])
    attempts: list[int] = []

    @queue.task("a")
    async def handle() -> None:
        attempts.append(current().attempt)

    async with working(queue) as worker:
        await handle.send()
        await until(lambda: ended(queue))
        await until(lambda: worker.health().done == 1)
    await queue.close()

    assert attempts == [1]
    assert {"claim", "settle", "wait"} <= hook.verbs


async def test_an_end_that_a_ctrl_c_in_a_hook_kept_back_is_told_in_the_last_words(memory: AsyncQueue) -> None:
    """The loop ends then, and goes on once more for the worker's stop."""
    answers: list[Any] = [KeyboardInterrupt(), ["done"]]
    settled: list[Any] = []

    async def settle(ends: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    engine: Any = SimpleNamespace(settle=settle)
    handling: Any = SimpleNamespace(end=End("a", "id", "token", "done"))
    settling = Settler(engine, lambda handlings: None, lambda *told: settled.append(told))
    line = settling._lines[None] = Line(None, settling)
    line.waiting.append(handling)
    with pytest.raises(KeyboardInterrupt):
        await line._work()
    assert await settling.drain(StopWaits(asyncio.get_running_loop().time())) == 0
    assert settled == [([handling], ["done"])]


async def test_one_that_does_not_go_on_ends_the_message(memory: AsyncQueue, working: Any, until: Any) -> None:
    handled: list[int] = []

    async def skip(delivery: Any, handle: Any) -> None:
        pass

    @memory.task("a")
    async def handle() -> None:
        handled.append(1)

    await handle.send()
    async with working(memory, middleware=[skip]) as worker:
        await until(lambda: ended(memory))
        await until(lambda: worker.health().done == 1)

    assert handled == []


async def test_it_may_end_the_delivery_itself(queue: AsyncQueue, working: Any, until: Any, coloured: Any) -> None:
    async def put_off(delivery: Any, handle: Any) -> None:
        await delivery.retry("1h", error="later")

    @queue.task("a")
    @coloured
    def handle() -> None:
        pytest.fail("It was put off.")

    await handle.send()
    async with working(queue, middleware=[put_off]) as worker:
        await until(lambda: worker.health().running == 0)

        async def scheduled() -> bool:
            return (await queue.stats("a")).scheduled == 1

        await until(scheduled)

    [message] = await queue.messages("a")
    assert message.last_error == "later"


async def test_what_it_sets_in_the_context_is_seen_by_the_handler(
    memory: AsyncQueue, working: Any, until: Any, coloured: Any
) -> None:
    mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="none")
    seen: list[str] = []

    async def setting(delivery: Any, handle: Any) -> None:
        mark.set(delivery.key)
        await handle()

    @memory.task("a")
    @coloured
    def handle() -> None:
        seen.append(mark.get())

    for number in range(10):
        await handle.options(key=f"k{number}").send()
    async with working(memory, middleware=[setting]):
        await until(lambda: ended(memory))

    assert sorted(seen) == [f"k{number}" for number in range(10)]


async def test_it_is_cancelled_with_its_handler_when_the_worker_stops(memory: AsyncQueue, working: Any, until: Any) -> None:
    order: list[str] = []

    async def around(delivery: Any, handle: Any) -> None:
        try:
            await handle()
        finally:
            order.append("out")

    @memory.task("a")
    async def handle() -> None:
        order.append("in")
        await asyncio.Event().wait()

    await handle.send()
    async with working(memory, middleware=[around]):
        await until(lambda: order == ["in"])

    assert order == ["in", "out"]
    assert (await memory.stats("a")).ready == 1


async def test_one_that_gives_up_on_a_thread_has_to_wait_until_the_thread_is_free(
    memory: AsyncQueue, working: Any, until: Any
) -> None:
    let_go = threading.Event()
    running, most = 0, 0
    held: list[Any] = []
    lock = threading.Lock()

    async def impatient(delivery: Any, handle: Any) -> None:
        await asyncio.wait_for(handle(), None if let_go.is_set() else 0.02)

    @memory.task("s", max_attempts=1)
    def handle() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            held.append(current())
        let_go.wait(10)
        with lock:
            running -= 1

    await memory.send_many("s", [{}] * 8)
    async with working(memory, middleware=[impatient], threads=2):
        await until(lambda: len(held) == 2 and all(each.expired for each in held))
        counts = await memory.stats("s")
        assert (counts.ready, counts.leased) == (6, 2)
        let_go.set()
        await until(lambda: ended(memory))

    assert most == 2
    assert (await memory.stats("s")).dead == 2


@pytest.mark.parametrize("how", ["nested", "again and again"])
async def test_one_that_cancels_twice_does_not_free_the_place_either(
    memory: AsyncQueue, working: Any, until: Any, how: str
) -> None:
    """Else another message would wait for the thread in that place, and be buried for it."""
    let_go = threading.Event()
    handled: list[int] = []
    attempts: list[asyncio.Task[Any]] = []

    async def cancel_again(task: "asyncio.Task[Any]") -> None:
        while not let_go.is_set():
            task.cancel()
            await asyncio.sleep(0.001)

    async def impatient(delivery: Any, handle: Any) -> None:
        own = asyncio.current_task()
        assert own is not None
        attempts.append(own)
        if how == "nested":
            async with asyncio.timeout(0.04), asyncio.timeout(0.02):
                await handle()
            return
        cancelling = asyncio.create_task(cancel_again(own))
        try:
            await handle()
        except asyncio.CancelledError:
            raise TimeoutError from None
        finally:
            cancelling.cancel()
            while own.uncancel():
                pass

    @memory.task("s", max_attempts=1)
    def handle(n: int) -> None:
        handled.append(n)
        let_go.wait(10)

    await memory.send_many("s", [{"n": n} for n in range(6)])
    async with working(memory, middleware=[impatient], threads=1):
        await until(lambda: handled and attempts[0].cancelling() >= 2)
        counts = await memory.stats("s")
        assert (counts.ready, counts.leased, counts.dead) == (5, 1, 0)
        let_go.set()
        await until(lambda: ended(memory))

    assert sorted(handled) == list(range(6))
