"""Delay queues: never early, first due first, and exactly one waiter is woken, whoever gives up on the way."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide import BadOption, BadTime, Unavailable
from bide.delays import AsyncDelayQueue, DelayQueue, Handle, base
from bide.delays.base import BaseDelayQueue

A_WHILE = 30.0  # seconds after which a test gives up
MS = 1_000_000
THREADS = ThreadPoolExecutor(40)  # that wait; more than any test has waiting


class Turned:
    """A monotonic clock that stands still."""

    def __init__(self) -> None:
        self.ns = 5_000_000_000

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Turned:
    turned = Turned()
    monkeypatch.setattr(base, "monotonic_ns", turned)
    return turned


@pytest.fixture(params=[AsyncDelayQueue, DelayQueue])
def queue(request: pytest.FixtureRequest) -> Iterator[Any]:
    queue = request.param()
    yield queue
    queue.close()


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with every look that a waiter takes at the queue: once when it comes, and once each time it is woken."""
    seen: list[object] = []
    look = BaseDelayQueue._take_or_wait

    def counted(self: BaseDelayQueue[Any], me: Any, deadline: int | None) -> Any:
        result = look(self, me, deadline)
        seen.append(me)
        return result

    monkeypatch.setattr(BaseDelayQueue, "_take_or_wait", counted)
    return seen


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(A_WHILE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def blocked_until(condition: Callable[[], bool]) -> None:
    for _ in range(int(A_WHILE * 1_000)):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not happen")


async def taken(queue: Any, timeout: Any = None) -> Any:
    if isinstance(queue, AsyncDelayQueue):
        return await queue.take(timeout)
    return await asyncio.get_running_loop().run_in_executor(THREADS, queue.take, timeout)


# What needs no waiting, in both colours.


def test_an_item_comes_when_its_delay_is_over_and_not_before(queue: Any, clock: Turned) -> None:
    queue.put("a", 1.5)
    clock.ns += 1_500 * MS - 1
    assert queue.poll() is None
    clock.ns += 1
    assert queue.poll() == "a"
    assert queue.poll() is None


def test_first_due_first_and_of_equals_first_come_first(queue: Any, clock: Turned) -> None:
    for number, delay in enumerate([2, "1s", 0, 2, 1, 0]):
        queue.put(number, delay)
    clock.ns += 2_000 * MS
    assert [queue.poll() for _ in range(6)] == [2, 5, 1, 4, 0, 3]


def test_none_is_an_item_like_any_other(queue: Any) -> None:
    assert queue.poll("empty") == "empty"
    assert queue.peek("empty") == "empty"
    queue.put(None)
    assert queue.peek("empty") is None
    assert queue.poll("empty") is None
    assert queue.poll("empty") == "empty"


def test_peek_shows_the_first_item_though_it_is_not_due(queue: Any) -> None:
    queue.put("late", "2h")
    queue.put("soon", "1h")
    assert queue.peek() == "soon"
    assert len(queue) == 2


def test_what_is_removed_does_not_come(queue: Any, clock: Turned) -> None:
    first, second = queue.put("a", 1), queue.put("b", 1)
    assert queue.remove(first) is True
    assert queue.remove(first) is False
    assert (len(queue), queue.peek()) == (1, "b")
    clock.ns += 1_000 * MS
    assert queue.poll() == "b"
    assert queue.remove(second) is False


def test_a_handle_of_another_queue_removes_nothing(queue: Any) -> None:
    other = DelayQueue[str]()
    foreign = other.put("a")
    queue.put("b")
    assert queue.remove(foreign) is False
    assert (len(queue), len(other)) == (1, 1)


def test_removed_items_leave_memory(queue: Any) -> None:
    handles = [queue.put(number, 3600) for number in range(10_000)]
    for number, handle in enumerate(handles):
        assert number % 20 == 0 or queue.remove(handle)
    assert len(queue) == 500
    assert len(queue._order) <= 2 * 500 + base.FEW


@pytest.mark.parametrize("delay", [-1, float("nan"), "soon", None, "36526d"])
def test_a_bad_delay_is_refused(queue: Any, delay: Any) -> None:
    with pytest.raises(BadTime, match="delay is"):
        queue.put("a", delay)
    assert len(queue) == 0


@pytest.mark.parametrize("handle", [None, "1", [], True])
def test_a_bad_handle_is_refused(queue: Any, handle: Any) -> None:
    with pytest.raises(BadOption, match="Give what put returned"):
        queue.remove(handle)


async def test_a_bad_timeout_is_refused(queue: Any) -> None:
    with pytest.raises(BadTime, match="timeout is"):
        await taken(queue, "soon")


async def test_close_gives_what_was_left_and_refuses_the_rest(queue: Any) -> None:
    for delay in (3, 1, 2):
        queue.put(delay, delay)
    queue.remove(queue.put("removed", 1))
    assert queue.close() == [1, 2, 3]
    assert queue.close() == []
    assert len(queue) == 0
    for use in (lambda: queue.put("a"), queue.poll, queue.peek):
        with pytest.raises(Unavailable, match="is closed"):
            use()
    with pytest.raises(Unavailable, match="is closed"):
        await taken(queue)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 20)),
        st.tuples(st.just("pass"), st.integers(0, 10)),
        st.tuples(st.just("poll"), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 100)),
    ),
    max_size=200,
)


@given(OPERATIONS)
def test_it_does_what_a_sorted_list_would(operations: list[tuple[str, int]]) -> None:
    clock, queue = Turned(), DelayQueue[int]()
    model: list[tuple[int, Handle]] = []
    handles: list[Handle] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "monotonic_ns", clock)
        for verb, number in operations:
            if verb == "put":
                handles.append(queue.put(len(handles), f"{number}ms"))
                model.append((clock.ns + number * MS, handles[-1]))
                model.sort()
            elif verb == "pass":
                clock.ns += number * MS
            elif verb == "poll":
                due = [handle for at, handle in model[:1] if at <= clock.ns]
                assert queue.poll(-1) == (handles.index(due[0]) if due else -1)
                model = model[len(due) :]
            elif handles:
                handle = handles[number % len(handles)]
                assert queue.remove(handle) is any(handle == each for _, each in model)
                model = [each for each in model if each[1] != handle]
            assert len(queue) == len(model)
            assert queue.peek(-1) == (handles.index(model[0][1]) if model else -1)


# Waiting, in both colours.


async def test_take_waits_until_the_first_item_is_due(queue: Any) -> None:
    queue.put("late", "1h")
    queue.put("soon", 0.01)
    assert await taken(queue) == "soon"


async def test_take_is_never_early(queue: Any) -> None:
    for delay in (0.001, 0.003, 0.007):
        before = monotonic_ns()
        queue.put("a", delay)
        await taken(queue)
        assert monotonic_ns() - before >= delay * 1_000 * MS


async def test_take_gives_up_after_its_timeout_with_nothing_lost(queue: Any) -> None:
    queue.put("a", "1h")
    for timeout in (0, 0.001):
        with pytest.raises(TimeoutError, match="Nothing fell due"):
            await taken(queue, timeout)
    assert len(queue) == 1
    assert not queue._waiting
    assert queue._leader is None


async def test_take_with_no_time_at_all_takes_what_is_due(queue: Any) -> None:
    queue.put("a")
    assert await taken(queue, 0) == "a"


async def test_close_wakes_all_who_wait(queue: Any) -> None:
    waiting = [asyncio.create_task(taken(queue)) for _ in range(5)]
    await until(lambda: len(queue._waiting) == 5)
    queue.close()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in outcomes] == [Unavailable] * 5


async def test_an_earlier_item_wakes_one_waiter_and_a_later_one_nobody(queue: Any, tries: list[object]) -> None:
    waiting = [asyncio.create_task(taken(queue)) for _ in range(5)]
    await until(lambda: len(tries) == 5)
    for seen, delay in ((6, "3h"), (7, "2h"), (7, "4h"), (8, "1h")):
        queue.put(delay, delay)
        await until(lambda seen=seen: len(tries) >= seen)  # type: ignore[misc]
    queue.put("now")
    await until(lambda: any(each.done() for each in waiting))
    await until(lambda: len(tries) >= 10)  # the one that takes it, and the one that leads from now on
    await asyncio.sleep(0)
    assert len(tries) == 10
    assert len(set(map(id, tries[5:9]))) == 1  # all but the last were the leader, who need not change
    queue.close()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_each_item_wakes_one_of_many(queue: Any, tries: list[object]) -> None:
    count = 30
    waiting = [asyncio.create_task(taken(queue)) for _ in range(count)]
    await until(lambda: len(tries) == count)
    for number in range(count):
        queue.put(number)
        await until(lambda number=number: sum(each.done() for each in waiting) == number + 1)  # type: ignore[misc]
    assert sorted(each.result() for each in waiting) == list(range(count))
    assert len(tries) == 2 * count


async def test_many_items_at_once_reach_all_who_wait(queue: Any) -> None:
    waiting = [asyncio.create_task(taken(queue)) for _ in range(20)]
    await until(lambda: len(queue._waiting) == 20)
    for number in range(20):
        queue.put(number, 0.001 * (number % 3))
    assert sorted(await asyncio.gather(*waiting)) == list(range(20))


async def test_a_leader_that_times_out_hands_the_lead_on(queue: Any) -> None:
    leader = asyncio.create_task(taken(queue, 0.05))
    await until(lambda: len(queue._waiting) == 1)
    follower = asyncio.create_task(taken(queue))
    await until(lambda: len(queue._waiting) == 2)
    queue.put("a", 0.1)
    with pytest.raises(TimeoutError):
        await leader
    assert await follower == "a"


# One colour only.


async def test_a_leader_that_is_cancelled_hands_the_lead_on() -> None:
    queue = AsyncDelayQueue[str]()
    queue.put("a", 0.01)
    tasks = [asyncio.create_task(queue.take()) for _ in range(3)]
    await until(lambda: len(queue._waiting) == 3)
    for leader in tasks[:2]:
        leader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leader
    assert await tasks[2] == "a"


async def test_a_wake_up_given_to_one_who_is_cancelled_is_not_lost() -> None:
    queue = AsyncDelayQueue[str]()
    leader, follower = (asyncio.create_task(queue.take()) for _ in range(2))
    await until(lambda: len(queue._waiting) == 2)
    queue.put("a")  # wakes the leader,
    leader.cancel()  # which is cancelled before it has had its turn
    assert await follower == "a"
    assert leader.cancelled()


async def test_a_task_cancelled_with_its_wake_up_already_there_takes_nothing() -> None:
    queue = AsyncDelayQueue[str]()
    task = asyncio.create_task(queue.take())
    await until(lambda: len(queue._waiting) == 1)
    queue.put("a")
    await asyncio.sleep(0)
    task.cancel()
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    assert (outcome, len(queue)) == ("a", 0) or (isinstance(outcome, asyncio.CancelledError) and len(queue) == 1)


async def test_an_async_queue_may_be_filled_by_another_thread() -> None:
    queue = AsyncDelayQueue[str]()
    task = asyncio.create_task(queue.take())
    await until(lambda: len(queue._waiting) == 1)
    await asyncio.to_thread(queue.put, "a")
    assert await task == "a"


def test_many_threads_put_remove_and_take_and_each_item_comes_once() -> None:
    queue = DelayQueue[int]()
    removed: list[int] = []

    def put(start: int) -> None:
        for number in range(start, start + 500):
            handle = queue.put(number, f"{number % 5}ms")
            if number % 7 == 0 and queue.remove(handle):
                removed.append(number)

    def take() -> list[int]:
        mine: list[int] = []
        while True:
            try:
                mine.append(queue.take())
            except Unavailable:
                return mine

    takers = [THREADS.submit(take) for _ in range(8)]
    for each in [THREADS.submit(put, number * 500) for number in range(4)]:
        each.result()
    blocked_until(lambda: len(queue) == 0)
    queue.close()
    got = [number for each in takers for number in each.result()]
    assert sorted(got + removed) == list(range(2_000))
