"""Starts real Redis Clusters, and does to them what happens to clusters: promotions, partitions, slots that move."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tests.servers.group import Group, Node
from tests.servers.migration import Migration
from tests.servers.redis import Setting
from tests.servers.server import HOST, free_port

SLOTS = 16_384


class Row(NamedTuple):
    """What a node thinks of one node."""

    id: str
    flags: frozenset[str]
    master: str  # of a replica, or ""
    slots: tuple[range, ...]

    @property
    def first_slot(self) -> int:
        """One of its slots, or -1."""
        return self.slots[0].start if self.slots else -1


class ClusterNode(Node):
    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(address, **options)
        self.id = ""
        self.bus_port = 0

    @property
    def ports(self) -> Sequence[int]:
        return [self.port, self.bus_port]

    def view(self) -> list[Row]:
        """How it sees the cluster."""
        return list(_rows(self.ask("CLUSTER", "NODES").decode()))

    def saved_row(self) -> Row:
        """What it last thought of itself, also when it is dead, frozen or cut off."""
        return next(row for row in _rows((self.folder / "nodes.conf").read_text()) if "myself" in row.flags)

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self.bus_port = free_port(self.port)
        self._settings["cluster-port"] = self.bus_port


class RedisCluster(Group):
    """Masters with replicas of their own, for `with`. Settings are those of redis.conf, for all nodes.

    Nodes notice in 2 seconds that one is silent. A cluster that lacks a slot serves none, as users have it who set nothing:
    `cluster_require_full_coverage="no"` if you want the other slots. `relayed`: clients go through the relay, too, so that
    their connections can go silent. Nothing is saved, unless `appendonly="yes"`: a master
    that restarts before it is missed comes back empty, and its replicas with it. `under`: for each node a command that runs
    it, such as valgrind.
    """

    def __init__(
        self,
        masters: int = 3,
        replicas: int = 1,
        *,
        appendonly: str = "no",
        relayed: bool = False,
        under: Sequence[Sequence[str]] = (),
        **settings: Setting,
    ) -> None:
        super().__init__()
        self._under = under or [()] * (masters * (1 + replicas))
        self._relayed = relayed
        self._masters, self._replicas = masters, replicas
        self._settings: dict[str, Setting] = {
            "cluster_enabled": "yes",
            "cluster_config_file": "nodes.conf",
            "cluster_node_timeout": 2_000,
            "cluster_preferred_endpoint_type": "hostname",
            "repl_diskless_sync_delay": 0,
            "repl_ping_replica_period": 1,  # clients are told of a replica when it has got something
            "appendonly": appendonly,
        }
        if "requirepass" in settings:
            self._settings["masterauth"] = settings["requirepass"]
        self._settings |= settings
        self.nodes: list[ClusterNode] = []

    @property
    def members(self) -> Sequence[ClusterNode]:
        return self.nodes

    @property
    def url(self) -> str:
        """All nodes, the first masters first. Without a password, whatever the settings say."""
        return "redis+cluster://" + ",".join(f"{self._host_of(node)}:{node.port}" for node in self.nodes)

    def masters(self) -> list[ClusterNode]:
        """The nodes that have slots now, by slot."""
        return [self._node(row.id) for row in sorted(self._view(), key=lambda row: row.first_slot) if row.slots]

    def master_of(self, replica: ClusterNode) -> ClusterNode:
        return self._node(next(row.master for row in self._view() if row.id == replica.id))

    def replica_of(self, master: ClusterNode) -> ClusterNode:
        """One of its replicas."""
        return next(self._node(row.id) for row in self._view() if row.master == master.id)

    def node_of(self, slot: int) -> ClusterNode:
        """The master that has this slot."""
        return self._node(_owner(self._view(), slot))

    def failover(self, replica: ClusterNode) -> None:
        """Make it the master in its master's place, by agreement of both, and wait until all know it."""
        slot = self.master_of(replica).saved_row().first_slot
        replica.ask("CLUSTER", "FAILOVER")
        self._until(lambda: self._agreed(slot, None) == replica.id, "a manual failover")
        self.wait_until_whole()

    def let_serve_alone(self, master: ClusterNode) -> None:
        """Let a master take writes for as long as it is cut off. Others stop when they have missed the majority so long.

        As if its clock went slower. This is over when it restarts.
        """
        master.ask("CONFIG", "SET", "cluster-node-timeout", 24 * 3_600_000)

    def wait_for_promotion(self, of: ClusterNode) -> ClusterNode:
        """Wait until another node has the slots of this one, and all nodes know it but this one. Gives the new master."""
        row = of.saved_row()
        if row.master:
            return self._node(row.master)

        def successor() -> str | None:
            owner = self._agreed(row.first_slot, of)
            return None if owner == of.id else owner

        return self._node(self._until(successor, "a promotion"))

    def wait_until_down(self, node: ClusterNode) -> None:
        """Wait until this node has noticed that it misses slots or the majority, and answers CLUSTERDOWN."""
        self._until(lambda: _cluster_info(node)["cluster_state"] == "fail", "a node that is down")

    def wait_until_whole(self) -> None:
        """Wait until all nodes agree on who is who, serve all slots, and have replicas that are up to date."""
        self._until(self._is_whole, "a whole cluster")
        self.wait_for_copies()

    def migrate(self, slot: int, target: ClusterNode, *, keys_at_once: int = 100) -> Migration:
        """Move a slot as `redis-cli --cluster reshard` does, step by step: see Migration. Nothing is done yet."""
        source = self.node_of(slot)
        others = [node for node in self.masters() if node not in (source, target)]
        return Migration(slot, source, target, others, keys_at_once=keys_at_once)

    def take_away(self, slots: Sequence[int]) -> None:
        """Leave slots without a node, and wait until all nodes know: what was on its way gives them to their node once more."""

        def are_gone() -> bool:
            kept = [(node, slot) for node in self.nodes for slot in slots if _owner(node.view(), slot)]
            for node, slot in kept:
                node.ask("CLUSTER", "DELSLOTS", slot)
            return not kept

        self._until(are_gone, "slots without a node")

    def empty(self) -> None:
        """Delete all keys, and wait until the replicas have done so, too."""
        for master in self.masters():
            master.ask("FLUSHALL")
        self._until(lambda: not any(node.ask("DBSIZE") for node in self.nodes), "no keys")

    def _start(self) -> None:
        for number in range(self._masters * (1 + self._replicas)):
            address = self._network.new_address()
            host = address if self._relayed else HOST
            announced = {"cluster_announce_ip": address, "cluster_announce_hostname": host}
            node = ClusterNode(address, under=self._under[number], **announced, **self._settings)
            self._add(node)
            node.id = node.ask("CLUSTER", "MYID").decode()
            self.nodes.append(node)
            if number < self._masters:
                node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                first, beyond = (SLOTS * each // self._masters for each in (number, number + 1))
                node.ask("CLUSTER", "ADDSLOTSRANGE", first, beyond - 1)
            for other in self.nodes[:-1]:
                node.ask("CLUSTER", "MEET", other.address, other.port, other.bus_port)
        self._until(lambda: all(self._knows_all(node.view()) for node in self.nodes), "nodes that know each other")
        for number, replica in enumerate(self.nodes[self._masters :]):
            replica.ask("CLUSTER", "REPLICATE", self.nodes[number % self._masters].id)
        self.wait_until_whole()

    def _followers(self) -> Iterable[tuple[Node, Node]]:
        return [(self._node(row.id), self._node(row.master)) for row in self._view() if row.master]

    def _node(self, id: str) -> ClusterNode:
        return next(node for node in self.nodes if node.id == id)

    def _view(self) -> list[Row]:
        """That of the node that knows most: one that was away has yet to hear of elections."""
        asked = [node for node in self.nodes if node.listening and node.side == 0]
        return max(asked, key=lambda node: int(_cluster_info(node)["cluster_current_epoch"])).view()

    def _agreed(self, slot: int, without: ClusterNode | None) -> str | None:
        """The node that has this slot, if all agree who are there."""
        asked = [node for node in self.nodes if node.listening and node.side == 0 and node is not without]
        owners = {_owner(node.view(), slot) for node in asked}
        return owners.pop() if len(owners) == 1 else None

    def _knows_all(self, view: list[Row]) -> bool:
        bad = {"handshake", "noaddr", "fail", "fail?"}
        return len(view) == len(self.nodes) and not any(bad & row.flags for row in view)

    def _is_whole(self) -> bool:
        if not all(node.listening for node in self.nodes):
            return False
        views = [node.view() for node in self.nodes]
        opinions = {frozenset((row.id, row.master, row.slots) for row in view) for view in views}
        return (
            all(map(self._knows_all, views))
            and len(opinions) == 1
            and sum(len(slots) for row in views[0] for slots in row.slots) == SLOTS
            and all(self._is_served_by(node) for node in self.nodes)
        )

    def _is_served_by(self, node: ClusterNode) -> bool:
        """Whether it serves all slots, tells clients of all nodes, and has a copy of its master's data if it is a replica."""
        if _cluster_info(node)["cluster_state"] != "ok":
            return False
        if node.info("replication").get("master_link_status", "up") != "up":
            return False
        places = {(place[0], place[1]) for _, _, *nodes in node.ask("CLUSTER", "SLOTS") for place in nodes}
        return places == {(self._host_of(node).encode(), node.port) for node in self.nodes}

    def _host_of(self, node: Node) -> str:
        """Where clients reach it."""
        return node.address if self._relayed else HOST


def _cluster_info(node: ClusterNode) -> dict[str, str]:
    return dict(line.split(":", 1) for line in node.ask("CLUSTER", "INFO").decode().splitlines())


def _owner(view: list[Row], slot: int) -> str:
    return next((row.id for row in view if any(slot in slots for slots in row.slots)), "")


def _rows(text: str) -> Iterator[Row]:
    for line in text.splitlines():
        if line.startswith("vars "):
            continue
        id, _, flags, master, _, _, _, _, *slots = line.split()
        ends = [each.partition("-") for each in slots if not each.startswith("[")]  # [: a slot that moves
        ranges = tuple(range(int(first), int(last or first) + 1) for first, _, last in ends)
        yield Row(id, frozenset(flags.split(",")), master.strip("-"), ranges)
