"""Through a proxy that spreads keys over two servers, and can neither block nor tell anything of them."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import AsyncQueue, Queue
from tests.servers.fixtures import NewRedis
from tests.servers.programs import needs_program
from tests.servers.server import free_port
from tests.worker.processes import until

CONFIG = """
pool:
  listen: 127.0.0.1:{port}
  hash: fnv1a_64
  hash_tag: "{{}}"
  distribution: ketama
  redis: true
  servers:
   - 127.0.0.1:{one}:1
   - 127.0.0.1:{two}:1
"""


@pytest.fixture
def proxy(new_redis: NewRedis, tmp_path: Path) -> Iterator[str]:
    program, port = needs_program("nutcracker"), free_port()
    config = tmp_path / "proxy.yml"
    config.write_text(CONFIG.format(port=port, one=new_redis().port, two=new_redis().port), encoding="utf-8")
    command = [program, "-c", str(config), "-s", str(free_port()), "-a", "127.0.0.1", "-o", str(tmp_path / "log")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port), lambda: (tmp_path / "log").read_text(encoding="utf-8"))
        yield f"redis://127.0.0.1:{port}?wake=poll&shards=4"
    finally:
        process.terminate()
        process.wait(20)


def listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


async def test_messages_go_through_a_proxy_and_wake_whoever_polls(proxy: str) -> None:
    async with AsyncQueue(proxy) as queue, AsyncQueue(proxy) as other:
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


def test_a_sync_queue_goes_through_a_proxy(proxy: str) -> None:
    with Queue(proxy) as queue:
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
