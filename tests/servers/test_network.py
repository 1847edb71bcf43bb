"""The network that groups of servers have is silent between its sides, in both directions, and not for clients."""

import os
import select
import socket
from collections.abc import Iterator

import pytest

from tests.servers.network import Network
from tests.servers.programs import needs_groups
from tests.servers.server import HOST, NotStarted, free_port


class Server:
    """Listens at 127.0.0.1, and calls from its own address."""

    def __init__(self, network: Network) -> None:
        self.address = network.new_address()
        self.port = free_port()
        self._listening = socket.create_server((HOST, self.port))
        network.listen(self.address, self.port)

    def call(self, other: "Server") -> socket.socket:
        return called(other, self.address)

    def answer(self) -> socket.socket:
        connection, _ = self._listening.accept()
        connection.settimeout(20)
        return connection

    def is_called(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(select.select([self._listening], [], [], 0.1)[0])

    def close(self) -> None:
        self._listening.close()


def called(server: Server, source: str = HOST) -> socket.socket:
    return socket.create_connection((server.address, server.port), 20, (source, 0))


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        connection.recv(100)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(20)
    return False


@pytest.fixture
def network() -> Iterator[Network]:
    needs_groups()
    with Network() as network:
        yield network


@pytest.fixture
def servers(network: Network) -> Iterator[tuple[Server, Server]]:
    pair = Server(network), Server(network)
    yield pair
    for server in pair:
        server.close()


def test_what_is_sent_across_a_cut_arrives_when_it_is_healed(network: Network, servers: tuple[Server, Server]) -> None:
    one, two = servers
    with one.call(two) as caller, two.answer() as answerer:
        caller.sendall(b"hello")
        assert answerer.recv(100) == b"hello"
        network.move(one.address, 1)
        caller.sendall(b"from one")
        answerer.sendall(b"from two")
        assert is_silent(caller)
        assert is_silent(answerer)
        network.move(one.address, 0)
        assert answerer.recv(100) == b"from one"
        assert caller.recv(100) == b"from two"


def test_the_end_of_a_connection_does_not_pass_a_cut(network: Network, servers: tuple[Server, Server]) -> None:
    one, two = servers
    with one.call(two) as caller, two.answer() as answerer:
        caller.sendall(b"hello")
        assert answerer.recv(100) == b"hello"
        network.move(two.address, 1)
        caller.close()
        assert is_silent(answerer)
        network.move(two.address, 0)
        assert answerer.recv(100) == b""


def test_a_call_across_a_cut_waits(network: Network, servers: tuple[Server, Server]) -> None:
    one, two = servers
    network.move(one.address, 1)
    with one.call(two) as caller:
        caller.sendall(b"hello")
        assert not two.is_called()
        network.move(two.address, 1)  # on one side they hear each other
        with two.answer() as answerer:
            assert answerer.recv(100) == b"hello"


def test_a_client_passes(network: Network, servers: tuple[Server, Server]) -> None:
    one, _ = servers
    network.move(one.address, 1)
    with called(one) as client, one.answer() as answerer:
        client.sendall(b"hello")
        assert answerer.recv(100) == b"hello"


def test_a_silence_is_for_clients_and_their_connections_stay_silent_after_it(
    network: Network, servers: tuple[Server, Server]
) -> None:
    one, two = servers
    with two.call(one) as other, one.answer() as to_other, called(one) as client, one.answer() as to_client:
        network.silence(one.address)
        client.sendall(b"hello")
        to_client.sendall(b"hello")
        assert is_silent(client)
        assert is_silent(to_client)
        other.sendall(b"hello")
        assert to_other.recv(100) == b"hello"
        network.silence(one.address)
        client.sendall(b"hello")
        assert is_silent(to_client)
        with called(one) as again, one.answer() as to_again:
            again.sendall(b"hello")
            assert to_again.recv(100) == b"hello"


def test_a_call_to_one_that_is_dead_ends_at_once(servers: tuple[Server, Server]) -> None:
    one, two = servers
    two.close()
    with one.call(two) as caller:
        assert caller.recv(100) == b""


def test_a_port_that_is_taken_is_told(network: Network, servers: tuple[Server, Server]) -> None:
    with pytest.raises(NotStarted, match="address already in use"):
        network.listen(servers[0].address, servers[0].port)


def test_nothing_is_left_of_it() -> None:
    needs_groups()
    with Network() as network:
        pid = network.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
