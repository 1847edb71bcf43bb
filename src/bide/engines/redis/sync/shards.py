# Generated from ../aio/shards.py by tools/unasync.py; change that file instead.
"""The shards of a namespace: on one server, on the master that Sentinels name, or over the masters of a Cluster."""

from bide.engines.redis.client import Address
from bide.engines.redis.failures import other_spread
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.server import Server
from bide.engines.redis.sync.connections import Connections
from bide.engines.redis.sync.nodes import Cluster, Nodes, Route, Sentinels
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.topology import slot_of, well_spread
from bide.errors import ConfigError


def shards_of(namespace: Namespace) -> list[Shard]:
    if namespace.address.clustered:
        return _over_a_cluster(namespace)
    made: dict[Address, Connections] = {}
    shards: list[Shard] = []
    for number, address in enumerate(namespace.servers):  # those on one server share its connections and its clock
        if address not in made:
            made[address] = Connections(_server(namespace, address))
        shards.append(Shard(number, namespace, made[address], shards[0] if shards else None))
    return shards


def one_a_server(shards: list[Shard]) -> list[Shard]:
    """The first shard of each server."""
    return list({shard.connections: shard for shard in reversed(shards)}.values())[::-1]


def disconnect(shards: list[Shard]) -> None:
    for shard in one_a_server(shards):
        shard.connections.close()


def _server(namespace: Namespace, address: Address) -> Server:
    clock = namespace.clock_of(address)
    return Route(address, clock, Sentinels(address)) if address.service else Server(address, clock)


def _over_a_cluster(namespace: Namespace) -> list[Shard]:
    """Each shard has connections and a clock of its own, as it may go from node to node."""
    nodes = Cluster(namespace.address)
    anchor = _routed(namespace, nodes, 0, None)
    try:
        if not namespace.spread:
            _spread(namespace, nodes, anchor)
        return [anchor, *(_routed(namespace, nodes, number, anchor) for number in range(1, namespace.shards))]
    except BaseException:
        disconnect([anchor])
        raise


def _routed(namespace: Namespace, nodes: Nodes, number: int, first: Shard | None) -> Shard:
    tag = namespace.tag(number)
    server = Route(namespace.address, namespace.clock_of(tag), nodes, slot_of(tag))
    return Shard(number, namespace, Connections(server), first)


def _spread(namespace: Namespace, nodes: Cluster, anchor: Shard) -> None:
    """Learn from shard 0 how all are spread; whoever comes first decides it, once for all."""
    address = namespace.address
    known = anchor.known_spread()
    if known is None:
        namespace.spread_as(well_spread(address.namespace, address.shards, nodes.spans()))
        try:
            anchor.calls.pin()
            return
        except ConfigError:
            known = anchor.known_spread()  # somebody else was first; or this user may not write
            if known is None:
                raise
    namespace.spread_as(known)
    if address.shards not in (None, namespace.shards):
        raise ConfigError(other_spread(address.shown, known))
