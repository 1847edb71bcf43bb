"""What clusters and Sentinel groups have in common: servers that know each other, and what may happen to them."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Self, TypeVar

import redis

from tests.servers.network import Network
from tests.servers.redis import RedisServer, Setting
from tests.servers.server import PATIENCE

PAUSE = 0.02  # seconds between two looks
TAIL = 2_000  # characters of each log, in an error
GroupT = TypeVar("GroupT")


class Node(RedisServer):
    """A server of a group. The others reach it at its `address`, with the same port; clients, and the tests, at 127.0.0.1.

    What it wrote into its own settings while it ran, such as the master that it got, is still there after a restart.
    """

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(bind_source_addr=address, **options)
        self.address = address
        self.side = 0
        self.frozen = False

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.kill()  # asked to end, a master would wait for replicas that are cut off
        super().__exit__()

    @property
    def host_and_port(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self.port}"

    @property
    def password(self) -> str:
        """That of `requirepass`, or nothing."""
        return str(self._settings.get("requirepass", ""))

    @property
    def ports(self) -> Sequence[int]:
        """Where the others call it."""
        return [self.port]

    @property
    def listening(self) -> bool:
        return self.running and not self.frozen

    def ask(self, *command: str | bytes | int) -> Any:
        """The plain answer to one command: bytes, numbers and lists."""
        with self.client(socket_timeout=PATIENCE, protocol=2) as client:
            client.response_callbacks.clear()
            return client.execute_command(*command)

    def info(self, section: str) -> dict[str, Any]:
        with self.client(socket_timeout=PATIENCE) as client:
            found: dict[str, Any] = client.info(section)
        return found

    def start(self, **settings: Setting) -> None:
        if settings:
            self._file.unlink(missing_ok=True)
        super().start(**settings)

    def stop(self) -> None:
        super().stop()
        self.frozen = False

    def kill(self) -> None:
        super().kill()
        self.frozen = False

    def freeze(self) -> None:
        super().freeze()
        self.frozen = True

    def thaw(self) -> None:
        super().thaw()
        self.frozen = False

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self._file.unlink(missing_ok=True)

    def _write_settings(self) -> None:
        if not self._file.exists():
            super()._write_settings()


class Group:
    """For `with`: the servers run inside the block, and nothing is left of them afterwards."""

    def __init__(self) -> None:
        self._network = Network()
        self._started = ExitStack()
        self._sides = 0

    def __enter__(self) -> Self:
        try:
            self._started.enter_context(self._network)
            self._start()
        except BaseException:
            self._started.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    @property
    def members(self) -> Sequence[Node]:
        """All servers."""
        raise NotImplementedError

    @property
    def relay_pid(self) -> int:
        """The process that carries what they say to each other."""
        return self._network.pid

    def kill(self, node: Node) -> None:
        """End a server as a power cut would. Its connections end with it."""
        node.kill()

    def restart(self, node: Node) -> None:
        """Start a server that was killed, or kill and start it: on the same port, with what it has in its folder."""
        if node.running:
            node.kill()
        node.start()

    def freeze(self, node: Node) -> None:
        """From now on a server keeps its connections and does nothing for anybody, until `thaw`."""
        node.freeze()

    def thaw(self, node: Node) -> None:
        node.thaw()

    def cut_off(self, *nodes: Node) -> None:
        """From now on these hear nothing of the other servers, nor those of them; clients still reach all of them.

        Connections stay open and are silent, as when a cable is pulled. Those that are cut off together hear each other.
        """
        self._sides += 1
        for node in nodes:
            self._move(node, self._sides)

    def heal(self, *nodes: Node) -> None:
        """These hear the others again, all that were cut off when none is named. What was sent meanwhile arrives now."""
        for node in nodes or self.members:
            self._move(node, 0)

    def silence(self, node: Node) -> None:
        """What clients and this server send each other by the relay is lost from now on; called again, no more.

        Connections stay open. Those of a client that were there, or were made, while it lasted stay silent after it.
        """
        self._network.silence(node.address)

    def wait_for_copies(self, patience: float = PATIENCE) -> None:
        """Wait until each replica has all that its master has now.

        A link that is up says less: a master that was busy when the replica had loaded its copy sends what has come since
        the copy began at the replica's next word, up to a second later. A replica is promoted without it.
        """
        for replica, master in self._followers():
            there = master.info("replication")["master_repl_offset"]

            def has_all(replica: Node = replica, there: int = there) -> bool:
                info = replica.info("replication")
                return info.get("master_link_status") == "up" and info["slave_repl_offset"] >= there

            self._until(has_all, "a replica that has all", patience)

    def _followers(self) -> Iterable[tuple[Node, Node]]:
        """Each replica, with its master."""
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def _add(self, node: Node) -> None:
        self._started.enter_context(node)
        for port in node.ports:
            self._network.listen(node.address, port)

    def _move(self, node: Node, side: int) -> None:
        self._network.move(node.address, side)
        node.side = side

    def _until(self, found: Callable[[], GroupT | None], what: str, patience: float = PATIENCE) -> GroupT:
        """What is found in the end. While a server is gone or refuses to say, nothing is."""
        give_up, error = time.monotonic() + patience, ""
        while True:
            try:
                result = found()
            except redis.RedisError as refused:
                result, error = None, f" ({refused})"
            if result:
                return result
            if time.monotonic() > give_up:
                logs = "\n".join(f"-- {node.host_and_port}:\n{node.log_text()[-TAIL:]}" for node in self.members)
                raise TimeoutError(f"{what}: not in {patience:.0f} seconds{error}\n{logs}")
            time.sleep(PAUSE)
