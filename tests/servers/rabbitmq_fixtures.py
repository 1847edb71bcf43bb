"""Gives tests their RabbitMQ brokers."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.servers.programs import needs_rabbitmq
from tests.servers.rabbitmq import PATIENCE, RabbitServer
from tests.servers.rabbitmq_cluster import RabbitCluster
from tests.servers.rabbitmq_hosts import VirtualHosts


class NewRabbit(Protocol):
    """Starts a broker with settings of its own, which is stopped when the test ends."""

    def __call__(
        self, *, tuned: bool = False, management: bool = False, lines: Sequence[str] = (), patience: float = PATIENCE
    ) -> RabbitServer: ...


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitServer]:
    """One broker for all tests of this process, with the HTTP API. Don't stop it: `new_rabbitmq` is for that."""
    needs_rabbitmq()
    with RabbitServer(management=True, prompt=True) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_hosts(rabbitmq_server: RabbitServer) -> VirtualHosts:
    """The virtual hosts of the shared broker."""
    return VirtualHosts(rabbitmq_server)


@pytest.fixture
def rabbitmq_url(rabbitmq_hosts: VirtualHosts) -> Iterator[str]:
    """The URL of a new virtual host of the shared broker, which is gone after the test."""
    url = rabbitmq_hosts.new()
    yield url
    rabbitmq_hosts.delete(url)


@pytest.fixture
def rabbitmq_shared_url(rabbitmq_hosts: VirtualHosts) -> str:
    """The URL of a virtual host that the tests of this process share: its queues stay, and all are empty.

    For tests that only put in and take out messages: to declare the queues of a namespace takes seconds.
    """
    return rabbitmq_hosts.shared()


@pytest.fixture
def new_rabbitmq() -> Iterator[NewRabbit]:
    needs_rabbitmq()
    with ExitStack() as started:
        yield lambda **options: started.enter_context(RabbitServer(**options))


@pytest.fixture(scope="module")
def rabbitmq_module_cluster() -> Iterator[RabbitCluster]:
    """Three nodes for the tests of a module, since they take 20 seconds to start."""
    needs_rabbitmq()
    with RabbitCluster(tuned=True) as cluster:
        yield cluster


@pytest.fixture
def rabbitmq_cluster(rabbitmq_module_cluster: RabbitCluster) -> RabbitCluster:
    """Three nodes, tuned, all of which run, whatever the tests before have done to them. Their queues are still there."""
    rabbitmq_module_cluster.mend()
    return rabbitmq_module_cluster
