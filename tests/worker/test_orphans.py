"""Messages that no handler is for: they stay, and somebody is told."""

from typing import Any

import pytest

from bide import AsyncQueue
from bide.errors import Unsupported
from bide.worker import chores
from tests.worker.faults import Faults


async def test_they_stay_ready_and_are_counted_and_told_of_once(
    queue: AsyncQueue, working: Any, until: Any, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(chores, "EVERY", 0.01)

    @queue.task("a")
    async def handle() -> None:
        pass

    await queue.send_many("nobodys", [{}] * 3)
    await queue.send("later", {}, delay="1h")
    await queue.send("others", {})
    async with working(queue) as worker:
        await until(lambda: worker.health().unhandled == 4)
        await queue.send("nobodys", {})
        await until(lambda: worker.health().unhandled == 5)

    assert caplog.text.count("messages of nobodys are due and no task here is for them") == 1
    assert caplog.text.count("1 message of others is due") == 1
    assert "later" not in caplog.text
    assert (await queue.stats("nobodys")).ready == 4


async def test_they_are_told_of_again_after_they_were_gone(
    memory: AsyncQueue, working: Any, until: Any, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(chores, "EVERY", 0.01)

    @memory.task("a")
    async def handle() -> None:
        pass

    async with working(memory) as worker:
        for times in (1, 2):
            await memory.send("nobodys", {})
            await until(lambda: worker.health().unhandled == 1)
            assert caplog.text.count("1 message of nobodys is due") == times
            await memory.purge("nobodys", state="ready")
            await until(lambda: worker.health().unhandled == 0)


async def test_a_topic_that_has_a_task_is_not_told_of(
    memory: AsyncQueue, working: Any, until: Any, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(chores, "EVERY", 0.01)

    @memory.task("a")
    async def handle() -> None:
        pass

    @memory.task("b", aliases=["c"])
    async def other() -> None:
        pass

    await memory.send("b", {})
    await memory.send("c", {})
    await memory.send("nobodys", {})
    async with working(memory, topics=["a"]) as worker:
        await until(lambda: worker.health().unhandled == 1)

    assert "of b is" not in caplog.text
    assert "of c is" not in caplog.text


@pytest.mark.parametrize("error", [Unsupported("This engine can't count."), RuntimeError("it broke down")], ids=repr)
async def test_an_engine_that_cannot_count_stops_nothing(
    memory: AsyncQueue, working: Any, until: Any, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "EVERY", 0.005)
    faults = await Faults.of(memory)
    asked_for: list[int] = []
    handled: list[int] = []

    async def refuse(call: Any, asked: Any) -> Any:
        asked_for.append(1)
        raise error

    @memory.task("a")
    async def handle() -> None:
        handled.append(1)

    faults.around["stats"] = refuse
    async with working(memory) as worker:
        await until(lambda: len(asked_for) > 1)  # it looks again
        await handle.send()
        await until(lambda: handled == [1])
        assert worker.health().unhandled == 0
