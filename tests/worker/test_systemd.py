"""What systemd is told of a worker: that it is ready and alive, over a socket as systemd's own."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.cli.worker.health import FAILING, STALE, told_to_systemd
from bide.worker.claim_log import Health
from tests.worker.processes import PATIENCE, Shop, open_shop

HANDLERS = """
@queue.task("mail")
async def mail():
    say("mail", os.environ.get("NOTIFY_SOCKET"))
"""


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(PATIENCE)
        yield made


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        made.write(HANDLERS)
        yield made


def lines(listening: socket.socket) -> list[str]:
    return listening.recv(10_000).decode().splitlines()


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "two"])
def test_a_worker_is_ready_and_then_alive(shop: Shop, listening: socket.socket, processes: tuple[str, ...]) -> None:
    shop.queue.send("mail")
    worker = shop.start(*processes, env={"NOTIFY_SOCKET": str(listening.getsockname()), "WATCHDOG_USEC": "300000"})
    while "READY=1" not in (found := lines(listening)):
        assert found == ["STATUS=not ready: 0 running, 0 done, 0 failed", *["WATCHDOG=1"][: len(found) - 1]]
    # the next ones come by themselves, and say what it does
    while (found := lines(listening))[0] != "STATUS=ready: 0 running, 1 done, 0 failed":
        assert found[1:] == ["READY=1", "WATCHDOG=1"]
    # programs that handlers start are not told where systemd listens
    assert shop.said("mail")[0].words == ("mail", None)
    assert worker.stop()[0] == 0


@pytest.mark.parametrize(
    ("seen", "failing", "expected", "said"),
    [
        (0, 0, 1, ["STATUS=ready: 3 running, 1,000 done, 2 failed", "READY=1", "WATCHDOG=1"]),
        (0, 0, 2, ["STATUS=not ready: 3 running, 1,000 done, 2 failed", "WATCHDOG=1"]),  # a process is missing
        (0, FAILING + 1, 1, ["STATUS=not ready: 3 running, 1,000 done, 2 failed", "WATCHDOG=1"]),  # the engine is away
        (STALE + 1, 0, 1, ["STATUS=not ready: 3 running, 1,000 done, 2 failed"]),  # the loop is blocked: a restart helps
    ],
)
async def test_what_is_told(listening: socket.socket, seen: float, failing: float, expected: int, said: list[str]) -> None:
    now = time.monotonic()
    health = Health(seen=now - seen, failing_since=failing and now - failing, running=3, done=1_000, failed=2)
    environment = {"NOTIFY_SOCKET": str(listening.getsockname()), "WATCHDOG_USEC": "nonsense"}
    async with told_to_systemd(lambda: {os.getpid(): health}, expected, environment):
        assert await asyncio.to_thread(lines, listening) == said
    assert "NOTIFY_SOCKET" not in environment


async def test_a_socket_in_the_abstract_namespace_may_be_it() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0bide-{os.getpid()}")
        async with told_to_systemd(dict, 0, {"NOTIFY_SOCKET": f"@bide-{os.getpid()}"}):
            listening.settimeout(PATIENCE)
            assert "READY=1" in await asyncio.to_thread(lines, listening)


async def test_who_does_not_listen_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with told_to_systemd(dict, 0, {"NOTIFY_SOCKET": str(tmp_path / "nobody")}):
        assert "systemd can't be told of the worker" in caplog.text
    async with told_to_systemd(dict, 0, {}):
        pass
