"""Starts real RabbitMQ clusters of several nodes on this machine, kills nodes and brings them back."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, Self, TypeVar

from tests.servers.epmd import Epmd
from tests.servers.rabbitmq import CommandFailed, RabbitServer
from tests.servers.rabbitmq_management import ManagementError
from tests.servers.server import NotStarted

PATIENCE = 120.0  # seconds: a start takes 20, and more where others work, too
PAUSE = 0.05  # seconds between two looks
FORMATION = "cluster_formation.peer_discovery_backend = classic_config"
BARE = "?disable_stats=true"
LEAD = (
    "[rabbit_quorum_queue:transfer_leadership(Queue, node()) || "
    "Queue <- rabbit_amqqueue:list(), amqqueue:get_type(Queue) =:= rabbit_quorum_queue]."
)
FoundT = TypeVar("FoundT")


class RabbitCluster:
    """Nodes that know each other, for `with`. They start together, and nothing is left of them afterwards.

    Each node has a copy of every quorum queue that is declared while all of them run. `tuned` and `lines` are those of
    RabbitServer. Every node has the HTTP API. Tests reach a node at its own `url`.
    """

    def __init__(self, size: int = 3, *, tuned: bool = False, lines: Sequence[str] = ()) -> None:
        names = [f"bide{number}" for number in range(1, size + 1)]
        members = [
            f"cluster_formation.classic_config.nodes.{number + 1} = {name}@localhost" for number, name in enumerate(names)
        ]
        self._options: dict[str, Any] = {"tuned": tuned, "management": True, "lines": [FORMATION, *members, *lines]}
        self._names = names
        self._started = ExitStack()
        self.nodes: list[RabbitServer] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._started.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    @property
    def urls(self) -> list[str]:
        """Of the nodes, in their order."""
        return [node.url for node in self.nodes]

    @property
    def running(self) -> list[RabbitServer]:
        """The nodes that were not stopped or killed."""
        return [node for node in self.nodes if node.running]

    def mend(self) -> None:
        """Start the nodes that are not running, and wait until the cluster is whole."""
        self._together([node.start for node in self.nodes if not node.running])
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Wait until all nodes run and agree on it, and each quorum queue has a leader and all its copies."""
        everyone = {node.node for node in self.nodes}
        self._until(lambda: all(_running_nodes(node) == everyone for node in self.nodes), "nodes that know each other")
        self._until(lambda: all(map(_is_whole, self._quorum_queues())), "quorum queues with all their copies")

    def leader_of(self, queue: str, host: str = "/") -> RabbitServer:
        """The node that leads a quorum queue. Waits until one does that is running."""
        return self._until(lambda: self._running_leader(queue, host), f"a leader of {queue}")

    def rebalance(self) -> None:
        """Move the lead of quorum queues, so that all nodes lead as many."""
        self.running[0].ctl("rebalance", "quorum", program="rabbitmq-queues")

    def lead_from(self, node: RabbitServer) -> None:
        """Move the lead of all quorum queues to this node, as the restarts of the others may do. All nodes have to run."""

        def leads_all() -> bool:
            if all(queue["leader"] == node.node for queue in self._quorum_queues()):
                return True
            node.ctl("eval", LEAD)
            return False

        self._until(leads_all, f"{node.node} that leads all quorum queues")

    def _start(self) -> None:
        epmd = self._started.enter_context(Epmd())
        self.nodes = [RabbitServer(name=name, epmd=epmd, patience=PATIENCE, **self._options) for name in self._names]
        # One after the other they would wait for each other in vain.
        self._together([partial(self._started.enter_context, node) for node in self.nodes])
        self.wait_until_whole()

    def _together(self, calls: Sequence[Callable[[], object]]) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            for call in [threads.submit(each) for each in calls]:
                call.result()

    def _quorum_queues(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.running[0].management.get("queues", query=BARE)
        return [queue for queue in found if queue["type"] == "quorum"]

    def _running_leader(self, queue: str, host: str) -> RabbitServer | None:
        leader = self.running[0].management.get("queues", host, queue, query=BARE)["leader"]
        return next((node for node in self.running if node.node == leader), None)

    def _until(self, found: Callable[[], FoundT | None], what: str) -> FoundT:
        give_up, error = time.monotonic() + PATIENCE, ""
        while True:
            result = None
            try:
                result = found()
            except (ManagementError, CommandFailed, OSError) as refused:
                error = f": {refused}"
            if result:
                return result
            if time.monotonic() > give_up:
                raise NotStarted(f"no {what} in {PATIENCE:.0f} seconds{error}")
            time.sleep(PAUSE)


def _running_nodes(asked: RabbitServer) -> set[str]:
    """Those of which this one thinks so."""
    return {node["name"] for node in asked.management.get("nodes") if node["running"]}


def _is_whole(queue: dict[str, Any]) -> bool:
    return bool(queue["leader"]) and set(queue["online"]) == set(queue["members"])
