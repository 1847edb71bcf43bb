"""Tasks that are written a little differently from most."""

import asyncio
import functools
import logging
import re
from typing import Any

import pytest

from bide import AsyncQueue, Bury, ConfigError, Retry, Snooze
from bide.worker import chores
from tests.worker.test_running import ended


@pytest.mark.parametrize(
    ("raised", "level", "said"),
    [
        (
            Bury("no such order"),
            logging.WARNING,
            r"failed in attempt 1 of 2 after \d+\.\d{3} s, as its handler asked, and is buried: no such order",
        ),
        (
            Snooze("1s", max_wait=0),
            logging.WARNING,
            r"failed in attempt 1 of 2 after \d+\.\d{3} s, as its handler asked, and is buried: put off for",
        ),
        (
            Retry(delay=0),
            logging.INFO,
            r"failed in attempt 1 of 2 after \d+\.\d{3} s, as its handler asked, and is tried again in 0 s: ",
        ),
    ],
    ids=["bury", "snooze", "retry"],
)
async def test_what_a_handler_asks_for_is_told_without_a_traceback(
    memory: AsyncQueue, working: Any, until: Any, caplog: Any, raised: Exception, level: int, said: str
) -> None:
    @memory.task("a", max_attempts=2)
    async def handle() -> None:
        raise raised

    caplog.set_level(logging.INFO, "bide.worker")
    await handle.send()
    async with working(memory):
        await until(lambda: ended(memory))

    [told] = [each for each in caplog.records if re.search(said, each.getMessage())]
    assert (told.levelno, told.exc_info) == (level, None)
    if isinstance(raised, Retry):
        [last] = [each for each in caplog.records if "failed in attempt 2 of 2" in each.getMessage()]
        assert "as its handler asked, and is buried: " in last.getMessage()
        assert (last.levelno, last.exc_info) == (logging.WARNING, None)


async def test_what_a_function_returns_may_have_a_hint_that_only_a_checker_can_look_up(
    memory: AsyncQueue, working: Any, until: Any
) -> None:
    seen: list[int] = []

    @memory.task("a")
    async def handle(n: int) -> "OnlyWhileChecking":  # type: ignore[name-defined]  # noqa: F821
        seen.append(n)

    await memory.send("a", {"n": 1})
    await memory.send("a", {"n": "not a number"}, max_attempts=1)
    async with working(memory):
        await until(lambda: ended(memory))
    assert seen == [1]


async def test_a_sync_function_that_hands_on_something_to_be_awaited_has_failed(
    memory: AsyncQueue, working: Any, until: Any
) -> None:
    class Later:
        def __await__(self) -> Any:
            yield

    @memory.task("a", max_attempts=1)
    def handle() -> Any:
        return Later()

    await handle.on(memory).send()
    async with working(memory) as worker:
        await until(lambda: ended(memory))
        assert worker.health().done == 0
    [dead] = await memory.messages("a", state="dead")
    assert "returned a Later, which nobody awaits" in str(dead.last_error)


def test_a_partial_needs_a_topic(memory: AsyncQueue) -> None:
    def cancel(order: int, reason: str) -> None: ...

    with pytest.raises(ConfigError, match="no name to make a topic of"):
        memory.task()(functools.partial(cancel, reason="unpaid"))
    assert memory.task("order.cancel")(functools.partial(cancel, reason="unpaid")).topic == "order.cancel"


async def test_a_task_that_is_defined_too_late_is_told_of(
    memory: AsyncQueue, working: Any, until: Any, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(chores, "EVERY", 0.01)

    @memory.task("early")
    async def early() -> None: ...

    async with working(memory) as worker:

        @memory.task("late")
        async def late() -> None: ...

        await late.send()
        await until(lambda: worker.health().unhandled == 1)
    assert "1 message of late is due, and its task was defined when this worker had begun" in caplog.text
    async with working(memory) as worker:
        await until(lambda: worker.health().done == 1)


async def test_tasks_that_a_worker_was_not_asked_to_serve_are_another_ones(
    memory: AsyncQueue, working: Any, until: Any, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(chores, "EVERY", 0.01)
    looked = asyncio.Event()
    look = chores.Orphans.look

    async def watched(self: chores.Orphans) -> None:
        await look(self)
        looked.set()

    monkeypatch.setattr(chores.Orphans, "look", watched)

    @memory.task("mine")
    async def mine() -> None: ...

    @memory.task("other")
    async def other() -> None: ...

    await other.send()
    async with working(memory, topics=["mine"]) as worker:
        await looked.wait()
        assert worker.health().unhandled == 0
    assert "are due" not in caplog.text
