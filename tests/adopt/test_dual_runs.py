"""Real peers fill, send and consume while their messages are adopted, and the adopter is killed five times.

`python -m pytest -m slow -s tests/adopt/test_dual_runs.py` prints what became of every message.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

import pytest
import redis

from benchmarks.peers.install import NotInstalled, environment
from tests.adopt.dual_run import OLD, PROGRAMS, DualRun
from tests.servers.fixtures import NewRedis
from tests.servers.programs import lacking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FILLED, PRODUCED = 100_000, 5_000
KILLS = 5
BEGIN, LENGTH = 25, 60  # seconds from the filling on, in which the messages fall due


def adopt_amid(run: DualRun, client: redis.Redis, beside: str, command: list[str]) -> dict[str, Any]:
    """Kill the adopter again and again, with what old consumers do in between; then let it go on until all is handled."""
    random = Random(7)
    for _ in range(KILLS):
        run.kill_adopter(command, lambda: bool(client.exists(beside)), random.randint(2, 8))
        run.until_more(OLD, 500)
    with run.adopting(command) as told:
        run.until(lambda: run.handled() >= FILLED + PRODUCED, "the last message")
    return told


def judge(run: DualRun, kind: str, told: dict[str, Any]) -> None:
    verdict = run.verdict(FILLED + PRODUCED)
    print(f"\n{kind}: {verdict}")
    assert (verdict.lost, verdict.doubled, verdict.early) == (0, 0, 0)
    assert verdict.by_old + verdict.by_bide == verdict.total
    assert verdict.by_old > 1_000
    assert verdict.by_bide > 1_000
    assert verdict.kills == KILLS
    assert verdict.amid > 0, "no kill came while a batch was under way"
    assert (told["held"], told["refused"]) == (0, {})


def fill(start: Callable[..., Popen[bytes]], run: DualRun) -> None:
    filling = start("fill", str(FILLED), "0", str(BEGIN), str(LENGTH))
    assert filling.wait(300) == 0


def test_a_sorted_set_of_php(tmp_path: Path, new_redis: NewRedis, redis_url: str) -> None:
    old = new_redis()

    def start(*arguments: str) -> Popen[bytes]:
        return run.python("php_like.py", old.url, *arguments)

    with old.client() as client, DualRun(tmp_path, redis_url, "order") as run:
        fill(start, run)
        start("work")
        start("produce", str(PRODUCED), str(FILLED), str(BEGIN), str(LENGTH))
        run.until(lambda: run.count(OLD) > 0, "the first message of the old consumer")
        command = ["redis-zset", "delay_queue", "--topic", "order", "--source", old.url]
        told = adopt_amid(run, client, "{delay_queue}:bide-adopt", command)
        judge(run, "redis-zset, as PHP", told)
        assert client.keys() == []


def test_a_bucket_and_a_pool_of_java(tmp_path: Path, new_redis: NewRedis, redis_url: str) -> None:
    old = new_redis()

    def start(*arguments: str) -> Popen[bytes]:
        return run.python("java_like.py", old.url, *arguments)

    with old.client() as client, DualRun(tmp_path, redis_url, "order") as run:
        fill(start, run)
        for program in ("move", "work", "work"):
            start(program)
        start("produce", str(PRODUCED), str(FILLED), str(BEGIN), str(LENGTH))
        run.until(lambda: run.count(OLD) > 0, "the first message of the old consumers")
        command = ["redis-zset", "DelayBucket", "--job-hash", "JobPool", "--topic-field", "topic", "--member", "message"]
        told = adopt_amid(run, client, "{DelayBucket}:bide-adopt", [*command, "--source", old.url])
        judge(run, "redis-zset with --job-hash, as Java", told)
        assert client.keys() == []


def test_a_list(tmp_path: Path, new_redis: NewRedis, redis_url: str) -> None:
    old = new_redis()

    def start(*arguments: str) -> Popen[bytes]:
        return run.python("list_like.py", old.url, *arguments)

    with old.client() as client, DualRun(tmp_path, redis_url, "order") as run:
        fill(start, run)
        start("work")
        start("produce", str(PRODUCED), str(FILLED))
        run.until(lambda: run.count(OLD) > 0, "the first message of the old consumer")
        command = ["redis-list", "ready", "--end", "right", "--topic", "order", "--source", old.url]
        told = adopt_amid(run, client, "{ready}:bide-adopt", command)
        judge(run, "redis-list", told)
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
        fill(start, run)
        start("work")
        start("produce", str(PRODUCED), str(FILLED), str(BEGIN), str(LENGTH))
        run.until(lambda: run.count(OLD) > 0, "the first message of the old worker")
        command = ["bullmq", "order", "--topic", "order", "--source", old.url]
        told = adopt_amid(run, client, "{bull:order}:bide-adopt", command)
        judge(run, "bullmq", told)
        left = {key.decode() for key in client.scan_iter()}
        assert left <= {f"bull:order:{name}" for name in ("id", "meta", "events", "marker", "stalled-check")}
