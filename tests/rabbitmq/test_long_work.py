"""Work that takes longer than the broker lets a consumer hold a message."""

from collections.abc import AsyncIterator, Iterator

import aiormq
import pytest
import pytest_asyncio

from bide.engines.aio import AsyncEngine
from bide.engines.base import Claimed, Hold, NewMessage, Settings
from bide.engines.rabbitmq import source
from bide.engines.rabbitmq.aio import parked
from bide.testing.contract.bench import ending
from tests.servers.programs import needs_rabbitmq
from tests.servers.rabbitmq import RabbitServer

TIMEOUT = 3  # seconds: the broker's consumer_timeout
LEASE = 600_000


@pytest.fixture(scope="module")
def strict() -> Iterator[RabbitServer]:
    """A broker that closes the channels of slow consumers soon."""
    needs_rabbitmq()
    with RabbitServer(lines=[f"consumer_timeout = {TIMEOUT * 1000}"]) as server:
        server.ctl("eval", "application:set_env(rabbit, channel_tick_interval, 500).")  # it looks once a minute otherwise
        yield server


@pytest_asyncio.fixture
async def engine(strict: RabbitServer) -> AsyncIterator[AsyncEngine]:
    engine = source(Settings(url=f"{strict.url}?consumer_timeout={TIMEOUT}")).aio()
    await engine.open()
    yield engine
    await engine.close()


async def _claimed(engine: AsyncEngine, topic: str) -> Claimed:
    while not (claim := await engine.claim([topic], 1, LEASE)).messages:
        await engine.wait([topic], 5.0)
    return claim.messages[0]


async def _outlasts(strict: RabbitServer) -> None:
    """Return when the broker has closed the channel of another consumer, that has held its message as long."""
    async with aiormq.connect(strict.url) as connection:
        channel = await connection.channel()
        queue = (await channel.queue_declare("", exclusive=True)).queue or ""
        await channel.basic_publish(b"", routing_key=queue)
        await channel.basic_get(queue)
        with pytest.raises(aiormq.exceptions.AMQPChannelError):
            await channel.closing


async def test_a_delivery_outlasts_the_broker_s_consumer_timeout(strict: RabbitServer, engine: AsyncEngine) -> None:
    await engine.put([NewMessage("mail", b"long", headers={"a": "1"})])
    claimed = await _claimed(engine, "mail")
    # When the broker has lost its patience with others, twice
    for _ in range(2):
        await _outlasts(strict)
        assert await engine.extend([Hold("mail", claimed.id, claimed.token)], LEASE) == [True]
    # Then the work can end, and the message does not come again
    assert await engine.settle([ending(claimed, "done")]) == ["done"]
    await engine.put([NewMessage("mail", b"next")])
    assert (await _claimed(engine, "mail")).body == b"next"


async def test_long_work_of_a_process_that_dies_is_done_by_another(
    strict: RabbitServer, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked, "STAY_MS", 1_000)
    other = source(Settings(url=f"{strict.url}?consumer_timeout={TIMEOUT}")).aio()
    await other.open()
    await other.put([NewMessage("news", b"long", headers={"a": "1"}, max_attempts=5)])
    first = await _claimed(other, "news")
    await _outlasts(strict)
    # When its connection is lost
    await other.close()
    # Then it comes back as after any lost lease
    second = await _claimed(engine, "news")
    assert (second.id, second.body, dict(second.headers), second.attempt) == (first.id, b"long", {"a": "1"}, 2)
    assert second.token > first.token
    assert await engine.settle([ending(second, "done")]) == ["done"]
