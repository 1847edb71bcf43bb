"""amqps://: the broker and the client show each other their certificates, and mistakes are told apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import Queue, Unavailable
from tests.servers.certificates import Certificates, make_certificates
from tests.servers.programs import needs_rabbitmq
from tests.servers.rabbitmq import RabbitServer
from tests.servers.server import HOST, free_ports


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def server(certificates: Certificates, port: int) -> Iterator[RabbitServer]:
    """It lets in nobody without a certificate."""
    needs_rabbitmq()
    lines = [
        f"listeners.ssl.1 = {HOST}:{port}",
        f"ssl_options.cacertfile = {certificates.authority}",
        f"ssl_options.certfile = {certificates.server}",
        f"ssl_options.keyfile = {certificates.server_key}",
        "ssl_options.verify = verify_peer",
        "ssl_options.fail_if_no_peer_cert = true",
    ]
    with RabbitServer(lines=lines) as server:
        yield server


def test_messages_pass_over_tls(server: RabbitServer, certificates: Certificates, port: int) -> None:
    own = f"certfile={certificates.client}&keyfile={certificates.client_key}"
    with Queue(f"amqps://{HOST}:{port}/?cafile={certificates.authority}&{own}") as queue:
        queue.send("mail", 1, delay="10ms")
        assert [each.body for each in queue.receive("mail", wait="10s")] == [1]


def test_a_certificate_of_strangers_is_not_trusted(
    server: RabbitServer, certificates: Certificates, port: int, tmp_path: Path
) -> None:
    strangers = make_certificates(tmp_path)
    own = f"certfile={certificates.client}&keyfile={certificates.client_key}"
    with Queue(f"amqps://{HOST}:{port}/?cafile={strangers.authority}&{own}") as queue, pytest.raises(Unavailable) as refused:
        queue.send("mail")
    assert "the broker's certificate is not trusted: " in str(refused.value)


def test_a_port_without_tls_is_told_of(server: RabbitServer, certificates: Certificates) -> None:
    with (
        Queue(f"amqps://{HOST}:{server.port}/?cafile={certificates.authority}") as queue,
        pytest.raises(Unavailable) as refused,
    ):
        queue.send("mail")
    assert "does not speak TLS there: " in str(refused.value)
