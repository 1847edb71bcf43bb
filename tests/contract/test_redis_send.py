"""The contract suite on Redis, with the messages sent by the script that is there for other languages.

It sends all but what comes from another queue with its attempts.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from bide.engines.base import NewMessage, Settings
from bide.engines.redis import CAPABILITIES, RedisSource, source
from bide.engines.redis.aio.engine import AsyncRedis
from bide.engines.redis.sync.engine import Redis
from bide.engines.registry import Source
from bide.errors import BadTime
from bide.testing.contract import EngineContract
from bide.testing.contract.bench import Bench
from bide.types import Sent
from tests.contract.test_redis_groups import IN_ONE_SHARD
from tests.model.turns import COLOURS, LONG
from tests.redis.foreign import WITH_TIME, Foreign, client_of, sent


class SentByScript(AsyncRedis):
    foreign: Foreign

    async def open(self) -> None:
        await super().open()
        assert self._shards is not None
        await self._shards.anchor.calls.pin()  # there is a queue as soon as a worker looks for messages

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        if any(new.past is not None for new in messages):
            return await super().put(messages, connection=connection, now=now)
        return [sent(self.foreign, new, now) for new in messages]


class SentByScriptSync(Redis):
    foreign: Foreign

    def open(self) -> None:
        super().open()
        assert self._shards is not None
        self._shards.anchor.calls.pin()

    def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        if any(new.past is not None for new in messages):
            return super().put(messages, connection=connection, now=now)
        return [sent(self.foreign, new, now) for new in messages]


class SendingSource(RedisSource):
    client: Any

    def aio(self) -> AsyncRedis:
        engine = SentByScript(self._namespace, self.capabilities)
        engine.foreign = Foreign(self.client, self.namespace, WITH_TIME)
        return engine

    def sync(self) -> Redis:
        engine = SentByScriptSync(self._namespace, self.capabilities)
        engine.foreign = Foreign(self.client, self.namespace, WITH_TIME)
        return engine


@pytest.fixture
def make_sending() -> Iterator[Callable[..., Source]]:
    clients: dict[str, Any] = {}

    def make(url: str, **settings: Any) -> Source:
        asked = Settings(url=url, **settings)
        plain = source(asked)
        made = SendingSource(plain._namespace.address, plain._namespace)
        made.client = clients.get(url) or clients.setdefault(url, client_of(url))
        return made

    yield make
    for client in clients.values():
        client.close()


class OneByOne:
    """A call of the script sends one message, so there are no batches to be refused."""

    async def test_a_message_due_later_than_the_longest_delay_refuses_its_batch(self, bench: Bench) -> None:
        longest = bench.can.max_delay
        with pytest.raises(BadTime):
            await bench.put("mail", delay=longest + 1)
        with pytest.raises(BadTime):
            await bench.put("mail", at=bench.now + longest + 1)
        assert (await bench.engine.stats("mail", now=bench.now)).pending == 0
        far = await bench.put("mail", delay=longest)
        assert far.due == bench.now + longest


@pytest.mark.variant("redis")
class TestRedisSend(OneByOne, EngineContract):
    capabilities = CAPABILITIES
    colours = COLOURS if LONG else ("async",)

    @pytest.fixture
    def make_source(self, redis_url: str, make_sending: Callable[..., Source]) -> Callable[..., Source]:
        return lambda **settings: make_sending(redis_url, **settings)


@pytest.mark.variant("redis")
class TestRedisSendToShards(OneByOne, EngineContract):
    """Of one server, by namespaces that are three shards each."""

    capabilities = CAPABILITIES
    colours = ("sync",)

    @pytest.fixture
    def make_source(
        self, redis_url: str, make_sending: Callable[..., Source], request: pytest.FixtureRequest
    ) -> Callable[..., Source]:
        url = redis_url + ("" if request.node.originalname in IN_ONE_SHARD else "?shards=3")
        return lambda **settings: make_sending(url, **settings)


@pytest.mark.slow
@pytest.mark.variant("redis")
class TestRedisClusterSend(OneByOne, EngineContract):
    """Over three masters."""

    capabilities = CAPABILITIES
    colours = ("async",)

    @pytest.fixture
    def make_source(
        self, redis_cluster_url: str, make_sending: Callable[..., Source], request: pytest.FixtureRequest
    ) -> Callable[..., Source]:
        url = redis_cluster_url + ("?shards=1" if request.node.originalname in IN_ONE_SHARD else "")
        return lambda **settings: make_sending(url, **settings)
