"""A task's max_attempts holds for messages that don't say how many they have, as from the CLI, SQL or another language."""

from typing import Any

import pytest

from bide import AsyncQueue, ManualClock, Queue, steps
from tests.worker.test_running import ended


@pytest.fixture
async def elsewhere(url: str) -> Any:
    """A program at the same place, which has no task."""
    made = AsyncQueue(url)
    yield made
    await made.close()


@pytest.mark.parametrize("url", ["sqlite", pytest.param("redis", marks=pytest.mark.server)], indirect=True)
@pytest.mark.parametrize(("given", "attempts"), [(None, 1), (2, 2), (3, 3), (5, 5)])
async def test_the_task_decides_unless_the_message_does(
    queue: AsyncQueue, elsewhere: AsyncQueue, working: Any, until: Any, coloured: Any, given: int | None, attempts: int
) -> None:
    called: list[int] = []
    told: list[int] = []

    @queue.task("charge", max_attempts=1, backoff=steps("0ms"), on_dead=lambda delivery, reason: told.append(delivery.attempt))
    @coloured
    def charge() -> None:
        called.append(1)
        raise OSError("no answer")

    await elsewhere.send("charge", {}, max_attempts=given)
    async with working(queue):
        await until(lambda: ended(queue))

    assert len(called) == attempts
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
    assert told[0].startswith("Attempt 1, the last, did not come to an end")


def test_time_travel_decides_the_same(coloured: Any) -> None:
    with Queue("memory://", clock=ManualClock()) as queue:

        @queue.task("charge", max_attempts=1)
        @coloured
        def charge() -> None:
            raise OSError("no answer")

        del queue.session.setup.tasks.attempts["charge"]  # as in a program that has no task
        queue.send("charge", {})
        queue.send("charge", {}, max_attempts=3)
        handled = queue.testing.advance("1h", raise_errors=False)

    assert sorted(each.outcome for each in handled) == ["dead", "dead", "retry", "retry"]
