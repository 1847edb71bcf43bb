"""Old and new workers at one queue, as during a deploy: no message dies because the wrong one has got it."""

from typing import Any

import pytest

from bide import AsyncQueue, steps

MANY = 100


@pytest.fixture(params=["a new argument", "a missing argument"])
def bodies(request: pytest.FixtureRequest) -> list[dict[str, int]]:
    """Of messages that the new release knows, and the old one does not."""
    name = "gift" if request.param == "a new argument" else "number"
    return [{"order": place, name: place} if name == "gift" else {"number": place} for place in range(MANY)]


@pytest.mark.parametrize("url", ["sqlite", pytest.param("redis", marks=pytest.mark.server)], indirect=True)
async def test_all_messages_survive_a_rolling_deploy(
    url: str, working: Any, until: Any, bodies: list[dict[str, int]], coloured: Any
) -> None:
    old, new = AsyncQueue(url), AsyncQueue(url)
    done: list[int] = []

    @old.task("pack", max_attempts=1, backoff=steps("0ms"))
    @coloured
    def pack(order: int) -> None:
        raise AssertionError("was called")

    def packed(order: int = 0, gift: int = 0, number: int = 0) -> None:
        done.append(gift or number)

    new.task("pack", max_attempts=1)(packed)

    async def waits() -> bool:
        return (await old.stats("pack")).scheduled == MANY

    async with working(old):
        for each in bodies:
            await old.send("pack", each)
        await until(waits)  # the old one has had them all
        async with working(new):
            await until(lambda: len(done) > MANY // 4)  # both take from the same queue
    async with working(new):
        await until(lambda: len(done) >= MANY)

    assert sorted(done) == list(range(MANY))
    stats = await old.stats("pack")
    assert (stats.dead, stats.pending) == (0, 0)
    await old.close()
    await new.close()


async def test_it_is_told_of_a_message_that_waits_and_of_one_that_is_buried(
    memory: AsyncQueue, working: Any, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @memory.task("pack")
    async def pack(order: int) -> None: ...

    await memory.send("pack", {"order": 1, "gift": 2})
    await memory.send("pack", {"order": "x"})
    async with working(memory) as worker:
        await until(lambda: worker.health().failed == 1)
        await until(lambda: "waits for another release" in caplog.text)

    told = {(record.levelname, record.getMessage().partition(" of pack ")[2][:35]) for record in caplog.records}
    assert told >= {("WARNING", "waits for another release of its ta"), ("ERROR", "is buried: pack(order: int) -> None")}
