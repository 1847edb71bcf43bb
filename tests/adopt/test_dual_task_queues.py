"""Celery and RQ fill, send and run while their tasks are adopted, and the adopter is killed five times.

`python -m pytest -m slow -s tests/adopt/test_dual_task_queues.py` prints what became of every task.
"""

import os
import signal
from pathlib import Path
from subprocess import Popen

import pytest

from benchmarks.peers.install import NotInstalled, environment
from tests.adopt.dual_run import DualRun
from tests.adopt.killing import FILLED, Dues, adopt_amid, judge
from tests.servers.fixtures import NewRedis
from tests.servers.programs import lacking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def installed(name: str) -> Path:
    try:
        return environment(name) / "bin"
    except NotInstalled as error:
        lacking(f"{name} can't be installed: {error}")
        raise


def test_celery(tmp_path: Path, new_redis: NewRedis, redis_url: str) -> None:
    folder, old = installed("celery"), new_redis()
    app = "tests.adopt.programs.celery_app"
    more = {"BROKER": old.url, "CELERY_WORKER_REVOKES_MAX": "200000"}

    def start(*arguments: str) -> Popen[bytes]:
        return run.start([str(folder / "python"), "-m", app, *arguments], **more)

    with old.client() as client, DualRun(tmp_path, redis_url, "order") as run:
        fillings = [start("fill", str(FILLED // 2), str(half * FILLED // 2), "240", "200") for half in (0, 1)]
        run.until(lambda: all(each.poll() == 0 for each in fillings), "all tasks")
        run.start([str(folder / "celery"), "-A", app, "worker", "-c", "2", "-l", "ERROR"], **more)
        run.until(lambda: client.hlen("unacked") > FILLED // 4, "many tasks in the worker's memory")
        command = ["celery", "--topic", "order", "--args", "order=n,due", "--source", old.url]
        command += ["--margin", "30s", "--revokes", "200000", "--workers", "1"]
        held = ("{unacked}:bide-adopt", "{celery}:bide-adopt")
        told = adopt_amid(run, start, command, lambda: bool(client.exists(*held)), Dues(120, 60))
        run.until(lambda: client.hlen("unacked") == 0, "the end of the last task")
        judge(run, "celery", told)
        assert not client.exists(*held)


def test_celery_workers_that_remember_few(tmp_path: Path, new_redis: NewRedis, redis_url: str) -> None:
    folder, old = installed("celery"), new_redis()
    app, more = "tests.adopt.programs.celery_app", {"BROKER": old.url, "CELERY_WORKER_REVOKES_MAX": "1000"}
    command = ["celery", "--topic", "order", "--args", "order=n,due", "--source", old.url, "--margin", "5s"]
    with old.client() as client, DualRun(tmp_path, redis_url, "order") as run:
        worker = run.start([str(folder / "celery"), "-A", app, "worker", "-c", "1", "-l", "ERROR"], **more)
        run.start([str(folder / "python"), "-m", app, "fill", "3000", "0", "40", "20"], **more)
        run.until(lambda: client.hlen("unacked") == 3_000, "all tasks in the worker's memory")
        code, told = run.adopt([*command, "--revokes", "1000"])
        assert (code, told["adopted"]) == (1, 980)
        assert [reason.split(":")[0] for reason in told["refused"]] == ["is one more than the workers can remember as revoked"]
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(60) == 0
        code, told = run.adopt([*command, "--workers-stopped"])
        assert (code, told["adopted"], told["refused"]) == (0, 2_020, {})
        run.until(lambda: run.handled() >= 3_000, "the last task")
        verdict = run.verdict(3_000)
        print(f"\ncelery, whose worker is stopped half way: {verdict}")
        assert (verdict.lost, verdict.doubled, verdict.early, verdict.by_bide) == (0, 0, 0, 3_000)


def test_rq(tmp_path: Path, new_redis: NewRedis, redis_url: str) -> None:
    folder, old = installed("rq"), new_redis()
    more = {"BROKER": old.url}

    def start(*arguments: str) -> Popen[bytes]:
        return run.start([str(folder / "python"), "-m", "tests.adopt.programs.rq_jobs", *arguments], **more)

    with old.client() as client, DualRun(tmp_path, redis_url, "tests.adopt.programs.rq_jobs.order") as run:
        filling = start("fill", str(FILLED), "0", "100", "240")
        for _ in range(2):
            worker = [str(folder / "rq"), "worker", "-w", "rq.SimpleWorker", "--with-scheduler", "--quiet", "-u", old.url]
            run.start([*worker, "order"], **more)
        assert filling.wait(300) == 0
        command = ["rq", "order", "--args", "tests.adopt.programs.rq_jobs.order=n,due", "--source", old.url]
        held = "{rq:scheduled:order}:bide-adopt"
        told = adopt_amid(run, start, command, lambda: bool(client.exists(held)), Dues(90, 60))
        judge(run, "rq", told)
        assert not client.exists(held)
