"""Through a proxy that spreads keys over three servers, and can neither block nor tell anything of them."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from bide import AsyncQueue, Finding, Outgoing, Queue
from bide.engines.base import Settings
from bide.engines.redis import namespace, source
from bide.engines.redis.resharding import Resharding
from bide.engines.redis.topology import Generation
from tests.redis.test_doctor import OF_PROXIES
from tests.servers.fixtures import NewRedis
from tests.servers.programs import needs_program
from tests.servers.redis import RedisServer
from tests.servers.server import free_port
from tests.worker.processes import until

SHARDS = 16
CONFIG = """
pool:
  listen: 127.0.0.1:{port}
  hash: {hash}
  hash_tag: "{{}}"
  distribution: {distribution}
  redis: true
  servers:
   - 127.0.0.1:{ports[0]}:1 first
   - 127.0.0.1:{ports[1]}:1 second
   - 127.0.0.1:{ports[2]}:1 third
"""


class Proxied(NamedTuple):
    url: str
    servers: Sequence[RedisServer]

    def shards(self) -> list[int]:
        """How many shards have keys on each server, most first. All of them get a message in each test."""
        found = []
        for server in self.servers:
            with server.client() as client:
                found.append(len({key.partition(b"}")[0] for key in client.scan_iter()}))
        return sorted(found, reverse=True)


@contextmanager
def running(new_redis: NewRedis, folder: Path, hash: str, distribution: str) -> Iterator[Proxied]:
    program, port, servers = needs_program("nutcracker"), free_port(), [new_redis() for _ in range(3)]
    config, ports = folder / "proxy.yml", [each.port for each in servers]
    config.write_text(CONFIG.format(port=port, hash=hash, distribution=distribution, ports=ports), encoding="utf-8")
    command = [program, "-c", str(config), "-s", str(free_port()), "-a", "127.0.0.1", "-o", str(folder / "log")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port), lambda: (folder / "log").read_text(encoding="utf-8"))
        yield Proxied(f"redis://127.0.0.1:{port}?wake=poll&shards={SHARDS}", servers)
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def proxied(new_redis: NewRedis, tmp_path: Path) -> Iterator[Proxied]:
    with running(new_redis, tmp_path, "fnv1a_64", "ketama") as found:  # as most are set up
        yield found


def listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


def fill(url: str) -> None:
    with Queue(url) as queue:
        queue.send_many("t", [Outgoing(n, key=f"k{n}") for n in range(400)])


def named_as_before(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Begin a namespace as the release before did it."""
    with monkeypatch.context() as patch:
        patch.setattr(namespace, "scattered", lambda name, first, size: Generation(first, size))
        fill(url)


def shards_found(url: str) -> Finding:
    told = Queue(url).examine()
    assert {each.name for each in told} == {"mode", "layout", "server", "memory", "eviction"} | OF_PROXIES
    assert [each.value for each in told if each.name == "eviction"] == ["noeviction"]
    [found] = [each for each in told if each.name == "shards"]
    return found


async def test_messages_go_through_a_proxy_and_wake_whoever_polls(proxied: Proxied) -> None:
    async with AsyncQueue(proxied.url) as queue, AsyncQueue(proxied.url) as other:
        receiving = asyncio.create_task(other.receive("t", wait=30))
        for n in range(8):
            await queue.send("t", {"n": n}, key=f"k{n}")
        got = await receiving
        while len(got) < 8:
            got += await other.receive("t", limit=8, wait=5)
        assert sorted(each.body["n"] for each in got) == list(range(8))
        for each in got:
            await each.ack()
        assert (await queue.stats("t")).leased == 0


def test_a_sync_queue_goes_through_a_proxy(proxied: Proxied) -> None:
    with Queue(proxied.url) as queue:
        sent = queue.send_many("t", list(range(2_500)))
        assert len({each.id for each in sent}) == 2_500
        assert queue.stats("t").ready == 2_500
        later = queue.send("u", 1, delay="1h")
        assert queue.cancel(later)
        got: list[int] = []
        while len(got) < 2_500:
            for each in queue.receive("t", limit=100, wait=5):
                each.ack()
                got.append(each.body)
        assert sorted(got) == list(range(2_500))
        assert dict(queue.stats().topics) == {}


@pytest.mark.parametrize("distribution", ["ketama", "modula"])
@pytest.mark.parametrize(
    ("hash", "most"), [("fnv1a_64", 8), ("fnv1_64", 8), ("fnv1a_32", 8), ("crc16", 8), ("murmur", 10), ("md5", 8)]
)
def test_shards_of_a_new_namespace_spread_over_the_servers(
    new_redis: NewRedis, tmp_path: Path, hash: str, most: int, distribution: str
) -> None:
    with running(new_redis, tmp_path, hash, distribution) as proxied:
        fill(proxied.url)
        there = proxied.shards()
        assert sum(there) == SHARDS
        assert there[0] <= most, there
        assert there[2] >= 2, there
        found = shards_found(proxied.url)
        assert (found.level, found.value.count(" on port ")) == ("ok", 3), found


def test_a_proxy_that_sends_keys_anywhere_is_found_out(new_redis: NewRedis, tmp_path: Path) -> None:
    with running(new_redis, tmp_path, "fnv1a_64", "random") as proxied:
        [found, *_] = [each for each in Queue(proxied.url).examine() if each.name == "shards"]
        assert found.level == "bad"
        assert "ketama or modula" in found.advice


def test_a_namespace_of_before_keeps_its_shards_until_it_is_resharded(
    proxied: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    named_as_before(monkeypatch, proxied.url)
    assert proxied.shards() == [SHARDS, 0, 0]
    found = shards_found(proxied.url)
    assert (found.level, found.value.count(" on port ")) == ("warn", 1)
    assert "bide reshard" in found.advice
    with Queue(proxied.url) as queue:
        assert queue.get(topic="t", key="k7") is not None
        assert queue.stats("t").ready == 400
        with Resharding(source(Settings(url=proxied.url, namespace="bide"))._namespace) as work:
            assert work.begin(12)
        assert queue.send("t", 7, key="k7", if_exists="keep").created is False
        queue.send_many("t", [Outgoing(n, key=f"k{n}") for n in range(400, 800)])
        assert proxied.shards()[2] >= 2
        got: set[int] = set()
        while len(got) < 800:
            for each in queue.receive("t", limit=100, wait=5):
                each.ack()
                got.add(each.body)


def test_who_comes_to_the_same_shards_without_a_proxy_finds_them(redis_url: str) -> None:
    fill(f"{redis_url}?wake=poll&shards=4")
    for options in ("shards=4", "shards=4&wake=poll", "wake=poll", ""):
        with Queue(f"{redis_url}?{options}") as queue:
            assert queue.stats("t").ready == 400
            assert all(queue.get(topic="t", key=f"k{n}") for n in range(9))
    assert {each.name for each in Queue(f"{redis_url}?shards=4&wake=poll").examine()} >= {"persistence", "messages"}


def test_two_that_begin_a_namespace_at_once_agree(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{redis_url}?wake=poll&shards=4"
    first, placed = Queue(url), namespace.Namespace.placed
    with monkeypatch.context() as patch:

        def meanwhile(own: namespace.Namespace, *asked: int) -> Generation:
            patch.undo()
            named_as_before(monkeypatch, url)  # a process of the release before
            return placed(own, *asked)

        patch.setattr(namespace.Namespace, "placed", meanwhile)
        with first:
            assert first.get(topic="t", key="k3") is not None
            assert first.stats("t").ready == 400
