# unasync: ../sync/shards.py
"""The shards of a namespace: on one server, on the master that Sentinels name, or over the masters of a Cluster."""

from bide.engines.redis.aio.connections import AsyncConnections
from bide.engines.redis.aio.nodes import AsyncCluster, AsyncNodes, AsyncRoute, AsyncSentinels
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.client import Address
from bide.engines.redis.failures import other_spread
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.server import AsyncServer
from bide.engines.redis.topology import slot_of, well_spread
from bide.errors import ConfigError


async def shards_of(namespace: Namespace) -> list[AsyncShard]:
    if namespace.address.clustered:
        return await _over_a_cluster(namespace)
    made: dict[Address, AsyncConnections] = {}
    shards: list[AsyncShard] = []
    for number, address in enumerate(namespace.servers):  # those on one server share its connections and its clock
        if address not in made:
            made[address] = AsyncConnections(_server(namespace, address))
        shards.append(AsyncShard(number, namespace, made[address], shards[0] if shards else None))
    return shards


def one_a_server(shards: list[AsyncShard]) -> list[AsyncShard]:
    """The first shard of each server."""
    return list({shard.connections: shard for shard in reversed(shards)}.values())[::-1]


async def disconnect(shards: list[AsyncShard]) -> None:
    for shard in one_a_server(shards):
        await shard.connections.close()


def _server(namespace: Namespace, address: Address) -> AsyncServer:
    clock = namespace.clock_of(address)
    return AsyncRoute(address, clock, AsyncSentinels(address)) if address.service else AsyncServer(address, clock)


async def _over_a_cluster(namespace: Namespace) -> list[AsyncShard]:
    """Each shard has connections and a clock of its own, as it may go from node to node."""
    nodes = AsyncCluster(namespace.address)
    anchor = _routed(namespace, nodes, 0, None)
    try:
        if not namespace.spread:
            await _spread(namespace, nodes, anchor)
        return [anchor, *(_routed(namespace, nodes, number, anchor) for number in range(1, namespace.shards))]
    except BaseException:
        await disconnect([anchor])
        raise


def _routed(namespace: Namespace, nodes: AsyncNodes, number: int, first: AsyncShard | None) -> AsyncShard:
    tag = namespace.tag(number)
    server = AsyncRoute(namespace.address, namespace.clock_of(tag), nodes, slot_of(tag))
    return AsyncShard(number, namespace, AsyncConnections(server), first)


async def _spread(namespace: Namespace, nodes: AsyncCluster, anchor: AsyncShard) -> None:
    """Learn from shard 0 how all are spread; whoever comes first decides it, once for all."""
    address = namespace.address
    known = await anchor.known_spread()
    if known is None:
        namespace.spread_as(well_spread(address.namespace, address.shards, await nodes.spans()))
        try:
            await anchor.calls.pin()
            return
        except ConfigError:
            known = await anchor.known_spread()  # somebody else was first; or this user may not write
            if known is None:
                raise
    namespace.spread_as(known)
    if address.shards not in (None, namespace.shards):
        raise ConfigError(other_spread(address.shown, known))
