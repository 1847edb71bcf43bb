"""A task's max_attempts holds for messages that don't say how many they have, as from the CLI, SQL or another language."""

from typing import Any

import pytest

from bide import AsyncQueue, ManualClock, Queue, Retry, current, steps
from tests.worker.test_running import ended


@pytest.fixture
async def elsewhere(url: str) -> Any:
    """A program at the same place, which has no task."""
    made = AsyncQueue(url)
    yield made
    await made.close()


ENGINES = pytest.mark.parametrize(
    "url", ["sqlite", *(pytest.param(each, marks=pytest.mark.server) for each in ("redis", "postgres"))], indirect=True
)


@ENGINES
@pytest.mark.parametrize(("given", "own"), [(None, 1), (2, 1), (3, 1), (5, 1), (None, 10), (2, 10), (3, 10)])
async def test_the_task_decides_unless_the_message_does(
    queue: AsyncQueue,
    elsewhere: AsyncQueue,
    working: Any,
    until: Any,
    coloured: Any,
    given: int | None,
    own: int,
) -> None:
    called: list[tuple[int, int]] = []
    attempts = given or own
    told: list[int] = []

    @queue.task(
        "charge", max_attempts=own, backoff=steps("0ms"), on_dead=lambda delivery, reason: told.append(delivery.attempt)
    )
    @coloured
    def charge() -> None:
        called.append((current().attempt, current().max_attempts))
        raise OSError("no answer")

    await elsewhere.send("charge", {}, max_attempts=given)
    async with working(queue):
        await until(lambda: ended(queue))

    assert called == [(number, attempts) for number in range(1, attempts + 1)]
    assert told == [attempts]
    [dead] = await queue.messages("charge", state="dead")
    assert dead.last_error == "OSError: no answer"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("batch", [None, 10])
async def test_a_message_whose_last_attempt_was_killed_is_buried_before_its_handler_begins_again(
    queue: AsyncQueue, elsewhere: AsyncQueue, working: Any, until: Any, batch: int | None
) -> None:
    told: list[str] = []

    @queue.task("charge", max_attempts=1, batch=batch, on_dead=lambda delivery, reason: told.append(reason))
    async def charge(items: list[int]) -> None:
        raise AssertionError("was called")

    await elsewhere.send("charge", 1 if batch else {"items": [1]})
    [held] = await elsewhere.receive("charge", lease="1s")  # and dies
    async with working(queue):
        await until(lambda: ended(queue))

    [dead] = await queue.messages("charge", state="dead")
    assert (dead.id, dead.attempt, dead.last_error) == (held.id, 2, told[0])
    assert told[0].startswith("It has had 1 of 1 attempt, and the last did not come to an end")


@ENGINES
async def test_what_a_failure_has_raised_counts_for_attempts_that_are_killed(
    queue: AsyncQueue, elsewhere: AsyncQueue, working: Any, until: Any
) -> None:
    called: list[int] = []

    @queue.task("charge", max_attempts=5, backoff=steps("0ms"))
    async def charge() -> None:
        called.append(current().attempt)
        raise OSError("no answer")

    await elsewhere.send("charge", {})
    for _ in range(2):
        [held] = await elsewhere.receive("charge")
        await held.retry("0ms", error="of a program that has no task")
    async with working(queue):
        await until(lambda: ended(queue))
    [dead] = await queue.messages("charge", state="dead")
    assert called == [3, 4, 5]
    assert (dead.attempt, dead.max_attempts) == (5, 5)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("by_hand", [True, False])
async def test_a_handler_that_asks_for_another_attempt_itself_has_as_many(
    queue: AsyncQueue, elsewhere: AsyncQueue, working: Any, until: Any, coloured: Any, by_hand: bool
) -> None:
    called: list[int] = []

    @queue.task("once", max_attempts=1)
    @coloured
    def once() -> None:
        called.append(1)
        raise Retry("0ms")

    @queue.task("often", max_attempts=5)
    async def often() -> None:
        called.append(5)
        if by_hand:
            await current().retry("0ms")
        else:
            raise Retry("0ms")

    await elsewhere.send("once", {})
    await elsewhere.send("often", {})
    async with working(queue):
        await until(lambda: ended(queue))
    assert sorted(called) == [1, 5, 5, 5, 5, 5]


@pytest.mark.parametrize(("own", "attempts"), [(1, 1), (2, 2), (10, 10)])
def test_time_travel_decides_the_same(coloured: Any, own: int, attempts: int) -> None:
    with Queue("memory://", clock=ManualClock()) as queue:

        @queue.task("charge", max_attempts=own)
        @coloured
        def charge() -> None:
            raise OSError("no answer")

        del queue.session.setup.tasks.attempts["charge"]  # as in a program that has no task
        queue.send("charge", {})
        queue.send("charge", {}, max_attempts=3)
        handled = queue.testing.advance("10h", raise_errors=False)

    assert sorted(each.outcome for each in handled) == ["dead", "dead", *["retry"] * (attempts - 1 + 2)]
