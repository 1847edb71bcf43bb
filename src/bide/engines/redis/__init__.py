"""Messages in Redis: a calendar of small buckets on the server that you have.

`redis://localhost:6379/0` names one; `rediss://` does with TLS, `unix:///path/to/redis.sock` a socket.
"""

import msgspec

from bide.engines.base import MAX_BATCH, Capabilities, Finding, Settings
from bide.engines.redis import doctor
from bide.engines.redis.aio.engine import AsyncRedis
from bide.engines.redis.client import Endpoint
from bide.engines.redis.location import read
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.protocol.sends import PART
from bide.engines.redis.resharding import Resharding
from bide.engines.redis.sync.engine import Redis
from bide.errors import ConfigError

CAPABILITIES = Capabilities(
    accepted="stored in the server's memory; its persistence settings decide what a crash may lose",
    ordered=False,
    max_body=2**28,
    max_topics=MAX_BATCH,
    together=PART,
)


ACCEPTED = {
    "memory": CAPABILITIES.accepted,
    "aof": "stored in the server's memory and in the AOF on its disk; a failover to a replica that is behind may lose it",
    "replicas": "stored in the memory of the server and of as many replicas as confirm= names; what all of these lose is lost",
}


class RedisSource:
    def __init__(self, address: Endpoint, namespace: Namespace) -> None:
        accepted = ACCEPTED[address.confirm.partition(":")[0]]
        self.capabilities: Capabilities = msgspec.structs.replace(CAPABILITIES, accepted=accepted)
        self._namespace = namespace
        self.shown: str = address.shown
        self.namespace: str = address.namespace

    def aio(self) -> AsyncRedis:
        return AsyncRedis(self._namespace, self.capabilities)

    def sync(self) -> Redis:
        return Redis(self._namespace, self.capabilities)

    def resharding(self) -> Resharding:
        """For `with`: spread the messages over another number of shards."""
        return Resharding(self._namespace)

    def examine(self) -> list[Finding]:
        return doctor.examine(self._namespace)

    def mend(self) -> None:
        """Nothing of what examine finds can be set right from here."""


def source(settings: Settings) -> RedisSource:
    if settings.clock is not None:
        raise ConfigError("The Redis server's own clock counts: leave clock= out.")
    address = read(settings)
    return RedisSource(address, Namespace(address, settings))
