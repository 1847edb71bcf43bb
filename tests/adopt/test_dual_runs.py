"""Real peers fill, send and consume while their messages are adopted, and the adopter is killed five times.

`python -m pytest -m slow -s tests/adopt/test_dual_runs.py` prints what became of every message.
"""

from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

import pytest

from benchmarks.peers.install import NotInstalled, environment
from tests.adopt.dual_run import PROGRAMS, DualRun
from tests.adopt.killing import dual_run
from tests.servers.fixtures import NewRedis
from tests.servers.programs import lacking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

POOL = ["--job-hash", "JobPool", "--topic-field", "topic", "--member", "message"]


class Peer(NamedTuple):
    """Programs that people have written around a key of Redis."""

    program: str
    key: str
    command: list[str]
    workers: Sequence[str] = ("work",)


PEERS = {
    "redis-zset, as PHP": Peer("php_like.py", "delay_queue", ["redis-zset", "delay_queue", "--topic", "order"]),
    "redis-zset with --job-hash, as Java": Peer(
        "java_like.py", "DelayBucket", ["redis-zset", "DelayBucket", *POOL], ("move", "work", "work")
    ),
    "redis-list": Peer("list_like.py", "ready", ["redis-list", "ready", "--end", "right", "--topic", "order"]),
}


@pytest.mark.parametrize("kind", PEERS)
def test_a_key_of_redis(tmp_path: Path, new_redis: NewRedis, redis_url: str, kind: str) -> None:
    old, peer = new_redis(), PEERS[kind]

    def start(*arguments: str) -> Popen[bytes]:
        return run.python(peer.program, old.url, *arguments)

    with old.client() as client, DualRun(tmp_path, redis_url, "order") as run:
        held = f"{{{peer.key}}}:bide-adopt"
        command = [*peer.command, "--source", old.url]
        dual_run(run, kind, start, command, lambda: bool(client.exists(held)), workers=peer.workers, last=8)
        assert client.keys() == []


def test_a_queue_of_bullmq(tmp_path: Path, new_redis: NewRedis, redis_url: str) -> None:
    try:
        folder = environment("bullmq")
    except NotInstalled as error:
        lacking(f"BullMQ can't be installed: {error}")
    old = new_redis()

    def start(*arguments: str) -> Popen[bytes]:
        return run.start(["node", str(PROGRAMS / "bullmq.js"), old.url, *arguments], PEER_FOLDER=str(folder))

    with old.client() as client, DualRun(tmp_path, redis_url, "order") as run:
        command = ["bullmq", "order", "--topic", "order", "--source", old.url]
        dual_run(run, "bullmq", start, command, lambda: bool(client.exists("{bull:order}:bide-adopt")), last=8)
        left = {key.decode() for key in client.scan_iter()}
        assert left <= {f"bull:order:{name}" for name in ("id", "meta", "events", "marker", "stalled-check")}
