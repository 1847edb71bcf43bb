"""Starts a master with replicas, watched by Redis Sentinels, and does to them what happens to such groups."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.servers.group import Group, Node
from tests.servers.redis import Setting

# Milliseconds, for `SENTINEL DEBUG`: a new or healed server is known in one second instead of ten, and a sentinel that
# was frozen works again after one second instead of thirty.
QUICK = {"info-period": 1_000, "publish-period": 500, "tilt-period": 1_000}
DOWN = {"s_down", "o_down", "disconnected", "failover_in_progress"}


class SentinelNode(Node):
    def _command(self) -> Sequence[str]:
        return [*super()._command(), "--sentinel"]

    def _launch(self) -> None:
        super()._launch()
        self.ask("SENTINEL", "DEBUG", *(word for item in QUICK.items() for word in item))

    def rows(self, what: str, service: str) -> list[dict[str, str]]:
        """What it knows of the replicas or of the other sentinels."""
        return [_row(answer) for answer in self.ask("SENTINEL", what, service)]

    def row(self, service: str) -> dict[str, str]:
        """What it knows of the master."""
        return _row(self.ask("SENTINEL", "MASTER", service))


class SentinelGroup(Group):
    """One master with replicas, and the sentinels that watch them, for `with`. Settings are those of redis.conf, for all
    servers but the sentinels.

    Sentinels notice after `down_after_milliseconds` that a server is silent. A master that has been cut off takes writes for
    as long as it likes: `min_replicas_to_write` is for those who want that to end.
    """

    def __init__(
        self,
        replicas: int = 2,
        sentinels: int = 3,
        *,
        service: str = "mymaster",
        down_after_milliseconds: int = 1_500,
        failover_timeout: int = 3_000,
        **settings: Setting,
    ) -> None:
        super().__init__()
        self.service = service
        self.nodes: list[Node] = []  # of the data, the first master first
        self.sentinels: list[SentinelNode] = []
        self._counts = replicas, sentinels
        self._watching: dict[str, Setting] = {
            "down-after-milliseconds": down_after_milliseconds,
            "failover-timeout": failover_timeout,
        }
        self._settings: dict[str, Setting] = {"repl_diskless_sync_delay": 0, **settings}
        if "requirepass" in settings:
            self._settings["masterauth"] = self._watching["auth-pass"] = settings["requirepass"]

    @property
    def members(self) -> Sequence[Node]:
        return [*self.nodes, *self.sentinels]

    @property
    def url(self) -> str:
        """All sentinels. Without a password, whatever the settings say."""
        return f"redis+sentinel://{','.join(node.host_and_port for node in self.sentinels)}/{self.service}"

    def master(self) -> Node:
        """The master, as all sentinels say who can be asked. They agree in the end."""
        return self._until(self._agreed, "agreement on the master")

    def replicas(self) -> list[Node]:
        """The other servers of the data."""
        master = self.master()
        return [node for node in self.nodes if node is not master]

    def kill_master(self) -> Node:
        """End the master as a power cut would. Gives it, for `wait_for_promotion` and `restart`."""
        master = self.master()
        self.kill(master)
        return master

    def failover(self) -> Node:
        """Make the sentinels promote a replica although the master is well. Gives the new master."""
        master = self.master()
        self._asked()[0].ask("SENTINEL", "FAILOVER", self.service)
        return self.wait_for_promotion(master)

    def wait_for_promotion(self, of: Node) -> Node:
        """Wait until all sentinels that can be asked name another master than this one. Gives it."""

        def successor() -> Node | None:
            agreed = self._agreed()
            return agreed if agreed is not of and agreed is not None and self._is_master(agreed) else None

        return self._until(successor, "a promotion")

    def wait_until_whole(self) -> None:
        """Wait until there is one master, all others are its replicas and up to date, and all sentinels know all of them."""
        self._until(self._is_whole, "a whole Sentinel group")
        self.wait_for_copies()

    def empty(self) -> None:
        """Delete all keys, and wait until the replicas have done so, too."""
        self.master().ask("FLUSHALL")
        self._until(lambda: not any(node.ask("DBSIZE") for node in self.nodes), "no keys")

    def _start(self) -> None:
        replicas, sentinels = self._counts
        for number in range(1 + replicas):
            following: dict[str, Setting] = {}
            if number:
                following["replicaof"] = f"{self.nodes[0].address} {self.nodes[0].port}"
            address = self._network.new_address()
            node = Node(address, replica_announce_ip=address, **following, **self._settings)
            self._add(node)
            self.nodes.append(node)
        # The sentinels ask the master at once for its replicas, and then not for a while.
        self._until(lambda: self._has_all_replicas(self.nodes[0]), "replicas that are up to date")
        quorum = sentinels // 2 + 1
        watching = [f"monitor {self.service} {self.nodes[0].address} {self.nodes[0].port} {quorum}"]
        watching += [f"{name} {self.service} {value}" for name, value in self._watching.items()]
        for _ in range(sentinels):
            address = self._network.new_address()
            sentinel = SentinelNode(address, sentinel=[f"announce-ip {address}", *watching])
            self._add(sentinel)
            self.sentinels.append(sentinel)
        self.wait_until_whole()

    def _followers(self) -> Iterable[tuple[Node, Node]]:
        master = self.master()
        return [(node, master) for node in self.nodes if node is not master]

    def _asked(self) -> list[SentinelNode]:
        return [sentinel for sentinel in self.sentinels if sentinel.listening and sentinel.side == 0]

    def _agreed(self) -> Node | None:
        """The server that all sentinels call the master, or nothing if they disagree or are in the middle of a failover."""
        rows = [sentinel.row(self.service) for sentinel in self._asked()]
        named = {(row["ip"], int(row["port"])) for row in rows}
        if len(named) != 1 or any("failover_in_progress" in row["flags"] for row in rows):
            return None
        (place,) = named
        return next(node for node in self.nodes if (node.address, node.port) == place)

    def _is_master(self, node: Node) -> bool:
        return node.listening and node.ask("ROLE")[0] == b"master"

    def _has_all_replicas(self, master: Node) -> bool:
        linked = [
            node
            for node in self.nodes
            if node is not master
            and (info := node.info("replication"))["role"] == "slave"
            and (info["master_host"], info["master_port"]) == (master.address, master.port)
            and info["master_link_status"] == "up"
        ]
        return len(linked) == len(self.nodes) - 1 and master.info("replication")["connected_slaves"] == len(linked)

    def _is_whole(self) -> bool:
        master = self._agreed() if all(node.listening for node in self.members) else None
        if master is None or not self._is_master(master) or not self._has_all_replicas(master):
            return False
        return all(self._knows_all(sentinel, master) for sentinel in self.sentinels)

    def _knows_all(self, sentinel: SentinelNode, master: Node) -> bool:
        """Whether a sentinel knows all others and misses none, and has heard that the replicas follow this master.

        One that last heard of a replica when it was a master would undo its next promotion.
        """
        replicas, others = (sentinel.rows(what, self.service) for what in ("REPLICAS", "SENTINELS"))
        rows = [sentinel.row(self.service), *replicas, *others]
        roles = [row["role-reported"] for row in rows if "role-reported" in row]
        return (
            (len(replicas), len(others)) == (len(self.nodes) - 1, len(self.sentinels) - 1)
            and roles == ["master", *["slave"] * len(replicas)]
            and all(row["master-host"] == master.address and row["master-port"] == str(master.port) for row in replicas)
            and not any(DOWN.intersection(row["flags"].split(",")) for row in rows)
        )


def _row(answer: Sequence[Any]) -> dict[str, str]:
    """Names and values by turns."""
    words = [word.decode() for word in answer]
    return dict(zip(words[::2], words[1::2], strict=True))
