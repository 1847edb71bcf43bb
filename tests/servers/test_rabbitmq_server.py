"""The RabbitMQ brokers that tests start do what they are told."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiormq
import pytest
from aiormq.abc import AbstractChannel
from pamqp.common import FieldValue

from tests.servers import programs
from tests.servers import rabbitmq as brokers
from tests.servers.processes import descendants, ended
from tests.servers.programs import needs_rabbitmq, rabbitmq_folder
from tests.servers.rabbitmq import CommandFailed, RabbitServer
from tests.servers.rabbitmq_fixtures import NewRabbit
from tests.servers.rabbitmq_hosts import VirtualHosts, name_in
from tests.servers.rabbitmq_management import ManagementError
from tests.servers.server import NotStarted, free_ports

QUORUM: dict[str, FieldValue] = {"x-queue-type": "quorum"}


@asynccontextmanager
async def channel_of(url: str) -> AsyncIterator[AbstractChannel]:
    connection = await aiormq.connect(url)
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def put(url: str, queue: str, body: bytes = b"x") -> None:
    """Confirmed: it is on the disk."""
    async with channel_of(url) as channel:
        await channel.queue_declare(queue, durable=True, arguments=QUORUM)
        await channel.basic_publish(body, routing_key=queue)


async def take(url: str, queue: str) -> bytes | None:
    async with channel_of(url) as channel:
        got = await channel.basic_get(queue, no_ack=True)
        return got.body or None


async def count(url: str, queue: str) -> int | None:
    async with channel_of(url) as channel:
        return (await channel.queue_declare(queue, passive=True)).message_count


def processes(server: RabbitServer) -> list[int]:
    return [server.pid, *descendants(server.pid), server.epmd.pid]


async def test_it_answers_at_its_url_and_to_commands(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> None:
    await put(rabbitmq_url, "things")
    host = ["--vhost", name_in(rabbitmq_url)]
    assert rabbitmq_server.ctl("list_queues", *host, "name", "type").split() == ["name", "type", "things", "quorum"]
    assert "leader" in rabbitmq_server.ctl("quorum_status", *host, "things", program="rabbitmq-queues")
    with pytest.raises(CommandFailed, match=r"(?s)rabbitmqctl no_such_command: exit code 64.*not found"):
        rabbitmq_server.ctl("no_such_command")


async def test_it_has_the_http_api_if_asked_for(rabbitmq_server: RabbitServer) -> None:
    assert rabbitmq_server.management.get("overview")["node"] == rabbitmq_server.node
    with pytest.raises(ManagementError, match="GET /api/queues/%2F/no%20such: 404"):
        rabbitmq_server.management.get("queues", "/", "no such")
    with pytest.raises(AssertionError, match="made without management"):
        _ = RabbitServer().management


async def test_it_listens_on_loopback_only(rabbitmq_server: RabbitServer) -> None:
    assert len(set(rabbitmq_server.ports)) == 4
    for port in rabbitmq_server.ports:
        socket.create_connection(("127.0.0.1", port)).close()
        with pytest.raises(ConnectionRefusedError):  # who listens at all addresses is there, too
            socket.create_connection(("127.0.0.2", port))


async def test_settings_reach_it(new_rabbitmq: NewRabbit) -> None:
    server = new_rabbitmq(tuned=True, lines=["consumer_timeout = 90000"])
    asked = "[application:get_env(rabbit, Name) || Name <- [consumer_timeout, dead_letter_worker_consumer_prefetch]]."
    assert server.ctl("eval", asked).split() == ["[{ok,90000},{ok,512}]"]


@pytest.mark.parametrize("way", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
async def test_a_start_on_the_same_data_keeps_what_was_confirmed(new_rabbitmq: NewRabbit, way: str) -> None:
    server = new_rabbitmq()
    before = server.url, server.folder
    await put(server.url, "things", b"kept")
    pids = [server.pid, *descendants(server.pid)]
    server.save_declared()
    server.stop() if way == "stop" else server.kill()
    assert all(ended(pid) for pid in pids)
    assert not server.running
    with pytest.raises(aiormq.AMQPConnectionError):
        await put(server.url, "things")
    server.start()
    assert (server.url, server.folder) == before
    assert await take(server.url, "things") == b"kept"
    assert ("SIGTERM received - shutting down" in server.log_text()) is (way == "stop")


async def test_a_frozen_one_does_not_answer_until_it_thaws(new_rabbitmq: NewRabbit) -> None:
    server = new_rabbitmq()
    async with channel_of(server.url) as channel:
        server.freeze()
        asked = asyncio.create_task(channel.queue_declare("things"))
        done, _ = await asyncio.wait([asked], timeout=0.2)
        assert not done
        server.thaw()
        assert (await asked).queue == "things"


@pytest.mark.usefixtures("new_rabbitmq")
@pytest.mark.parametrize(
    "state", ["running", "frozen", *(pytest.param(each, marks=pytest.mark.slow) for each in ("stopped", "killed"))]
)
def test_nothing_is_left_of_it(state: str) -> None:
    with RabbitServer() as server:
        server.ctl("status")
        pids, folders = processes(server), [server.folder, server.epmd.folder]
        assert len(pids) >= 4  # inet_gethost is among them
        if state == "frozen":
            server.freeze()
        if state == "stopped":
            server.stop()
        if state == "killed":
            server.kill()
    assert all(ended(pid) for pid in pids)
    assert not any(folder.exists() for folder in folders)
    assert not server.running


def test_a_setting_that_it_refuses_is_told_with_its_log(new_rabbitmq: NewRabbit) -> None:
    with pytest.raises(NotStarted, match=r"(?s)ended at once.*no_such_setting"):
        new_rabbitmq(lines=["no_such_setting = 1"])


@pytest.mark.slow
@pytest.mark.parametrize("which", ["clients", "distribution"])
def test_a_port_that_was_taken_meanwhile_is_not_the_end(
    new_rabbitmq: NewRabbit, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    free = free_ports(3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        first = [port, *free[1:]] if which == "clients" else [free[0], port, free[2]]
        ports = iter([first, free])
        monkeypatch.setattr(brokers, "free_ports", lambda _: next(ports))
        assert new_rabbitmq().port == free[0]


@pytest.mark.parametrize("time", ["first", "second"])
async def test_each_test_has_an_empty_virtual_host(
    rabbitmq_server: RabbitServer, rabbitmq_hosts: VirtualHosts, rabbitmq_url: str, time: str
) -> None:
    api, shared = rabbitmq_server.management, rabbitmq_hosts.shared()  # which tests before may have made
    assert {host["name"] for host in api.get("vhosts")} == {"/", name_in(shared), name_in(rabbitmq_url)}
    assert api.get("queues", name_in(rabbitmq_url)) == []
    await put(rabbitmq_url, time)


@pytest.mark.usefixtures("rabbitmq_server")
async def test_a_virtual_host_that_ends_ends_the_connections_to_it(rabbitmq_hosts: VirtualHosts) -> None:
    url = rabbitmq_hosts.new()
    connection = await aiormq.connect(url)
    channel = await connection.channel()
    rabbitmq_hosts.delete(url)
    with pytest.raises(aiormq.AMQPConnectionError):
        await channel.queue_declare("things")
    await connection.close()


async def test_the_shared_virtual_host_keeps_its_queues_and_empties_them(rabbitmq_hosts: VirtualHosts) -> None:
    url = rabbitmq_hosts.shared()
    await put(url, "things")
    connection = await aiormq.connect(url)  # and never closed by the test that made it
    channel = await connection.channel()
    assert (await channel.basic_get("things")).body == b"x"
    await channel.basic_publish(b"y", routing_key="things")
    assert rabbitmq_hosts.shared() == url
    assert await count(url, "things") == 0
    await connection.close()


@pytest.mark.parametrize("time", ["first", "second"])
async def test_the_shared_url_is_that_of_an_empty_queue(rabbitmq_shared_url: str, time: str) -> None:
    async with channel_of(rabbitmq_shared_url) as channel:
        declared = await channel.queue_declare("shared", durable=True, arguments=QUORUM)
        assert declared.message_count == 0
        await channel.basic_publish(time.encode(), routing_key="shared")


def test_a_missing_server_skips_the_test_or_fails_it_under_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_TEST_RABBITMQ", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="RabbitMQ is not in"):
        needs_rabbitmq()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="RabbitMQ is not in"):
        needs_rabbitmq()
    for name in ("rabbitmq-server", "epmd"):
        (tmp_path / name).touch(mode=0o755)
    needs_rabbitmq()


def test_debians_is_taken_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "DEBIAN_RABBITMQ", tmp_path)
    monkeypatch.delenv("BIDE_TEST_RABBITMQ", raising=False)
    debians = tmp_path / "rabbitmq_server-3.10.8" / "sbin"
    debians.mkdir(parents=True)
    assert rabbitmq_folder() == debians
    told = tmp_path / "told"
    told.mkdir()
    (told / "rabbitmq-server").touch(mode=0o755)
    monkeypatch.setenv("BIDE_TEST_RABBITMQ", str(told))
    assert rabbitmq_folder() == told


def test_those_that_need_a_server_are_marked(request: pytest.FixtureRequest, rabbitmq_url: str) -> None:
    assert request.node.get_closest_marker("server")
