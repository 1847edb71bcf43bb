"""Handlers without a task of their own: each sees a task, a context and cancellations as if it had one."""

import asyncio
import contextvars
import functools
import gc
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

import pytest

from bide import AsyncQueue, current
from bide.worker import slices
from bide.worker.slices import Left, Spare

Handler = Any  # a function without arguments, in the place of a message
own: contextvars.ContextVar[str] = contextvars.ContextVar("own", default="nobody's")


class Calls:
    """Calls handlers as a worker does: those that wait or raise go on in the task that was theirs."""

    def __init__(self, *handlers: Handler) -> None:
        self.left = list(handlers)
        self.ended: list[BaseException | None] = []
        self.late: list[BaseException | None] = []  # that went on in a task
        self.spares = 0
        self.over = asyncio.Event()

    def begin(self, task: "asyncio.Task[None]") -> Iterator[tuple[Handler, Coroutine[Any, Any, None]]]:
        assert asyncio.current_task() is task
        while self.left:
            handler = self.left.pop(0)
            yield handler, handler()

    def end(self, _: Handler, error: BaseException | None) -> bool:
        self.ended.append(error)
        return error is None

    async def goes_on(self, _: Handler, left: Left) -> None:
        try:
            if isinstance(left, BaseException):
                raise left
            await left
        except BaseException as error:
            self.late.append(error)
        else:
            self.late.append(None)

    def go(self, spare: Spare) -> None:
        assert asyncio.current_task() is None
        if spare.call(self.begin, self.end):
            spare.drop()
        if self.left:
            self.next()
        else:
            self.over.set()

    def next(self) -> None:
        loop = asyncio.get_running_loop()
        self.spares += 1
        loop.call_soon(self.go, Spare(self.goes_on, loop))


async def called(*handlers: Handler) -> Calls:
    calls = Calls(*handlers)
    calls.next()
    await calls.over.wait()
    return calls


async def turns_until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  (turns of the loop are what is looked at)
        await asyncio.sleep(0)


async def nothing() -> None: ...


async def test_handlers_that_wait_for_nothing_share_a_task() -> None:
    seen: list[int] = []

    async def handler() -> None:
        seen.append(id(asyncio.current_task()))

    calls = await called(*[handler] * 5)
    assert seen == [seen[0]] * 5
    assert (calls.ended, calls.late, calls.spares) == ([None] * 5, [], 1)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_each_has_a_context_of_its_own() -> None:
    seen: list[str] = []

    async def handler() -> None:
        seen.append(own.get())
        own.set("mine")

    async def waits() -> None:
        await handler()
        await asyncio.sleep(0)
        seen.append(own.get())
        own.set("mine still")
        await asyncio.sleep(0)
        seen.append(own.get())

    calls = await called(handler, waits, handler)
    await turns_until(lambda: bool(calls.late))
    assert sorted(seen) == ["mine", "mine still", "nobody's", "nobody's", "nobody's"]
    assert own.get() == "nobody's"


def keeps() -> tuple[list[Any], dict[str, Handler]]:
    """Ways in which somebody comes to know the task of a handler beyond its end."""
    kept: list[Any] = []

    def task() -> "asyncio.Task[Any]":
        found = asyncio.current_task()
        assert found is not None
        return found

    async def reference() -> None:
        kept.append(task())

    async def weak() -> None:
        kept.append(weakref.ref(task()))

    async def attribute() -> None:
        task().of_this_message = 1  # type: ignore[attr-defined]

    async def name() -> None:
        task().set_name("of this message")

    async def callback() -> None:
        task().add_done_callback(kept.append)

    async def cancelled() -> None:
        task().cancel()

    async def cancelled_and_back() -> None:
        task().cancel()
        task().uncancel()

    return kept, {each.__name__: each for each in (reference, weak, attribute, name, callback, cancelled, cancelled_and_back)}


@pytest.mark.parametrize("way", keeps()[1])
async def test_who_makes_the_task_his_own_shares_it_with_no_handler_after_that(way: str) -> None:
    seen: list[tuple[str, Any, int]] = []

    async def looks() -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append((task.get_name(), getattr(task, "of_this_message", None), task.cancelling()))

    kept, ways = keeps()
    calls = await called(ways[way], looks, looks)
    assert calls.spares == 2
    assert seen[0] == seen[1]
    assert seen[0][0] != "of this message"
    assert seen[0][1:] == (None, 0)
    assert calls.ended == [None] * 3
    if way == "callback":
        await turns_until(lambda: bool(kept))
        assert kept[0].done()


async def test_a_handler_that_waits_goes_on_in_the_task_that_it_has_seen() -> None:
    seen: list[Any] = []

    async def waits() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0.001)
        seen.append(asyncio.current_task())

    calls = await called(waits, nothing)
    await turns_until(lambda: bool(calls.late))
    assert seen[0] is seen[1]
    assert (calls.ended, calls.late, calls.spares) == ([None], [None], 2)


async def test_what_is_raised_is_seen_to_in_the_same_task() -> None:
    error = ValueError("bad")

    async def raises() -> None:
        raise error

    calls = await called(raises, nothing)
    await turns_until(lambda: bool(calls.late))
    assert (calls.ended, calls.late) == ([error, None], [error])
    frames = []
    found = error.__traceback__
    while found is not None:
        frames.append(found.tb_frame.f_code.co_name)
        found = found.tb_next
    assert frames == ["goes_on", "raises"]


async def test_what_several_wait_for_comes_to_each_of_them() -> None:
    seen: list[Any] = []
    shared: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        seen.append(await shared)

    other = asyncio.create_task(waits())
    calls = await called(waits, waits, waits)
    shared.set_result(7)
    await turns_until(lambda: len(calls.late) == 3)
    await other
    assert (seen, calls.late) == ([7] * 4, [None] * 3)


async def test_what_has_come_before_the_task_waits_for_it() -> None:
    seen: list[Any] = []
    shared: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        asyncio.get_running_loop().call_soon(shared.set_result, 7)
        seen.append(await shared)

    calls = await called(waits)
    await turns_until(lambda: bool(calls.late))
    assert (seen, calls.late) == ([7], [None])


@pytest.mark.parametrize("what", ["future", "task", "turn", "done"])
async def test_a_cancellation_before_the_task_has_begun_comes_by_way_of_what_is_waited_for(what: str) -> None:
    loop, seen = asyncio.get_running_loop(), list[Any]()
    future: asyncio.Future[Any] = loop.create_future()
    child: asyncio.Task[None] = asyncio.create_task(asyncio.sleep(30))

    async def waits() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop.call_soon(task.cancel)
        if what == "done":
            loop.call_soon(future.set_result, 1)
        try:
            if what == "turn":
                await asyncio.sleep(0)
            elif what == "task":
                await child
            else:
                await future
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    calls = Calls(waits)
    calls.next()
    await turns_until(lambda: bool(calls.late))
    assert isinstance(calls.late[0], asyncio.CancelledError)
    assert seen == ["cancelled"]
    assert future.cancelled() == (what == "future")
    if what == "task":
        assert child.cancelled()
    child.cancel()


async def test_one_that_cancels_itself_is_cancelled_when_it_waits() -> None:
    seen: list[str] = []

    async def waits() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        seen.append("goes on")
        try:
            await asyncio.sleep(30)
        finally:
            seen.append("cancelled")

    calls = await called(waits)
    await turns_until(lambda: bool(calls.late))
    assert seen == ["goes on", "cancelled"]
    assert isinstance(calls.late[0], asyncio.CancelledError)


async def test_timeouts_and_groups_work_as_in_a_task_of_its_own() -> None:
    seen: list[str] = []

    async def quick() -> None:
        async with asyncio.timeout(30):
            await nothing()
        seen.append("quick")

    async def late() -> None:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(30)
        except TimeoutError:
            seen.append("late")

    async def group() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(30))
                raise ValueError("bad")
        except* ValueError:
            seen.append("group")

    calls = await called(quick, late, group, quick)
    await turns_until(lambda: len(calls.late) == 2)
    assert sorted(seen) == ["group", "late", "quick", "quick"]
    assert calls.late == [None, None]


async def test_ctrl_c_in_a_handler_ends_the_loops_turn_and_leaves_no_task_current() -> None:
    async def ctrl_c() -> None:
        raise KeyboardInterrupt

    loop = asyncio.get_running_loop()
    calls = Calls(ctrl_c, nothing)
    spare = Spare(calls.goes_on, loop)
    await asyncio.sleep(0)
    seen: list[Any] = []
    loop.call_soon(lambda: seen.append((spare.call(calls.begin, calls.end), asyncio.current_task())))
    await turns_until(lambda: bool(calls.late))
    assert seen == [(False, None)]
    assert isinstance(calls.late[0], KeyboardInterrupt)


async def test_one_that_nobody_needs_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    spare = Spare(Calls().goes_on, loop)
    await asyncio.sleep(0)
    spare.drop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    del spare
    gc.collect()
    assert not caplog.records


async def test_nothing_of_a_handler_is_kept_after_its_end() -> None:
    class Thing:
        pass

    things: list[weakref.ref[Thing]] = []

    async def handler() -> None:
        thing = Thing()
        things.append(weakref.ref(thing))
        own.set(thing)  # type: ignore[arg-type]

    async def looks() -> None:
        things.append(things[-1])

    gc.disable()
    try:
        await called(handler, looks)
        assert things[0]() is None
    finally:
        gc.enable()


async def test_each_message_of_a_claim_has_a_context_of_its_own(queue: AsyncQueue, working: Any, until: Any) -> None:
    seen: list[tuple[str, str, int]] = []

    @queue.task("t")
    async def handle(number: int) -> None:
        seen.append((own.get(), current().id, number))
        own.set(f"of {number}")
        if number % 10 == 9:
            await asyncio.sleep(0)
            assert own.get() == f"of {number}"

    sent = await handle.send_many({"number": each} for each in range(100))
    async with working(queue):
        await until(lambda: len(seen) == 100)
    assert sorted(seen, key=lambda each: each[2]) == [("nobody's", each.id, number) for number, each in enumerate(sent)]


class Odd(Exception):
    """Its class has made of its attributes what it likes."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    def with_traceback(self, _: Any) -> Any:
        return None


class Wrapped:
    """An awaitable that gives a future of its own to the loop."""

    def __init__(self, future: "asyncio.Future[None]") -> None:
        self.future = future

    def __await__(self) -> Generator[Any, Any, None]:
        yield self.future


def of_other_arguments(function: Any) -> Any:
    @functools.wraps(function)
    async def handler(other: int) -> None: ...

    return handler


async def test_whatever_a_handler_raises_or_is_it_fails_as_a_task_would(memory: AsyncQueue, working: Any, until: Any) -> None:
    async def odd(number: int) -> None:
        raise Odd

    async def wrapped(number: int) -> None:
        await Wrapped(asyncio.get_running_loop().create_future())

    async def plain(number: int) -> None: ...

    handlers = {"odd": odd, "wrapped": wrapped, "other": of_other_arguments(plain), "plain": plain}
    for topic, handler in handlers.items():
        memory.task(topic, max_attempts=1)(handler)
        await memory.send_many(topic, [{"number": number} for number in range(20)])
    async with working(memory):
        await until(lambda: nothing_left(memory))
    stats = await memory.stats()
    assert {topic: each.dead for topic, each in stats.topics.items()} == {"odd": 20, "wrapped": 20, "other": 20}


async def nothing_left(queue: AsyncQueue) -> bool:
    stats = await queue.stats()
    return not stats.pending and not stats.leased


async def test_what_comes_after_a_handler_sees_its_context(memory: AsyncQueue, working: Any, until: Any) -> None:
    seen: list[str] = []

    async def on_dead(_: Any, __: str) -> None:
        seen.append(own.get())

    @memory.task("t", max_attempts=1, on_dead=on_dead)
    async def handle(number: int) -> None:
        own.set(f"of {number}")
        if number % 2:
            await asyncio.sleep(0)
        raise ValueError

    await handle.send_many({"number": number} for number in range(20))
    async with working(memory):
        await until(lambda: len(seen) == 20)
    assert sorted(seen) == sorted(f"of {number}" for number in range(20))


async def test_a_task_that_somebody_cancelled_before_it_was_ready_is_left_alone() -> None:
    calls = Calls(nothing)
    spare = Spare(calls.goes_on, asyncio.get_running_loop())
    spare._task.cancel()
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(calls.go, spare)
    await calls.over.wait()
    assert (calls.ended, calls.spares) == ([None], 1)


@pytest.mark.parametrize("way", ["raises", "name"])
async def test_a_topic_whose_handlers_need_a_task_each_time_gets_them_at_once(
    memory: AsyncQueue, working: Any, until: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    spares: list[Spare] = []

    def made(*args: Any) -> Spare:
        spares.append(Spare(*args))
        return spares[-1]

    @memory.task("t", max_attempts=1)
    async def handle(number: int) -> None:
        if way == "raises":
            raise ValueError
        task = asyncio.current_task()
        assert task is not None
        task.set_name(str(number))

    monkeypatch.setattr(slices, "Spare", made)
    await handle.send_many({"number": number} for number in range(100))
    async with working(memory):
        await until(lambda: nothing_left(memory))
    assert len(spares) == 1
