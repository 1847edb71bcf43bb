"""`--health`: over HTTP or by a file, of one process and of several."""

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from bide.cli.http import Port
from bide.cli.worker import health
from bide.cli.worker.health import FAILING, STALE, report
from bide.worker.claim_log import Health
from tests.servers.server import free_port
from tests.worker.processes import PATIENCE, Shop, open_shop, until

HANDLERS = """
@queue.task("mail")
async def mail():
    say("mail")

@queue.task("fails")
async def fails():
    raise ValueError

@queue.task("waits")
async def waits():
    say("waits")
    while not gone("go"):
        await asyncio.sleep(0.01)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        made.write(HANDLERS)
        yield made


def ask(port: int, method: str = "GET", path: str = "/") -> tuple[int, Any]:
    """The status and the report; 0 while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        assert answer.getheader("Content-Type") == "application/json"
        return answer.status, json.loads(answer.read() or b"null")
    except ConnectionRefusedError:
        return 0, None
    finally:
        connection.close()


def when_well(port: int) -> Any:
    return until(lambda: told[1] if (told := ask(port))[0] == 200 else None)


def test_a_port_answers_with_what_the_worker_does(shop: Shop) -> None:
    port = free_port()
    shop.queue.send_many("mail", [None] * 3)
    shop.queue.send("fails", max_attempts=1)
    shop.queue.send("nobodys")
    worker = shop.start("--health", f"127.0.0.1:{port}")
    shop.said("mail", count=3)
    shop.dead("fails")
    until(lambda: ask(port)[1]["processes"][0]["done"] == 3)
    shop.queue.send("waits")
    shop.said("waits")
    told = until(lambda: told if (told := when_well(port))["processes"][0]["running"] == 1 else None)
    unhandled = until(lambda: when_well(port)["processes"][0]["unhandled"])
    assert set(told) == {"ok", "processes"}
    [process] = told["processes"]
    assert process | {"unhandled": unhandled} == {
        "process": worker.pid,
        "ok": True,
        "running": 1,
        "done": 3,
        "failed": 1,
        "unhandled": 1,
        "unconfirmed": 0,
    }
    shop.touch("go")
    assert worker.stop()[0] == 0
    assert ask(port)[0] == 0


def test_a_probe_may_ask_as_it_likes(shop: Shop) -> None:
    port = free_port()
    worker = shop.start("--health", f":{port}")
    when_well(port)
    assert ask(port, path="/healthz?verbose=1")[0] == 200
    with socket.create_connection(("127.0.0.1", port)) as nonsense:
        nonsense.sendall(b"\x00\xff" * 200_000)
    with socket.create_connection(("127.0.0.1", port)) as silent:
        assert ask(port)[0] == 200
        code, took = worker.stop()  # one that never asks does not hold it up
        assert code == 0
        assert took < 4
        silent.close()
    assert "Traceback" not in worker.err


HELD = """
while "--lifeline" in sys.orig_argv and gone("hold"):
    time.sleep(0.01)
"""


def test_a_port_tells_of_every_process(shop: Shop) -> None:
    port = free_port()
    shop.write(HANDLERS + HELD)
    worker = shop.start("--health", f":{port}", "--processes", "2", "--grace", "2s")
    told = when_well(port)
    assert sorted(each["process"] for each in told["processes"]) == worker.children()
    assert all(each["ok"] for each in told["processes"])
    shop.queue.send_many("mail", [None] * 20)
    until(lambda: sum(each["done"] for each in ask(port)[1]["processes"]) == 20)
    shop.touch("hold")  # until somebody has seen that one is missing
    os.kill(told["processes"][0]["process"], 9)
    until(lambda: ask(port)[0] == 503)
    (shop.folder / "hold").unlink()
    when_well(port)
    assert worker.stop()[0] == 0


def test_a_port_that_is_taken_ends_it_with_a_sentence(shop: Shop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        code, err = shop.ended("--health", where)
    assert code == 1
    assert "Traceback" not in err
    assert f"bide: --health can't listen at {where}: " in err
    assert "in use" in err


def test_so_does_a_host_that_is_none(shop: Shop) -> None:
    code, err = shop.ended("--health", "no.such.host.invalid:8080")
    assert code == 1
    assert "Traceback" not in err
    assert "bide: --health can't listen at no.such.host.invalid:8080: " in err


@pytest.mark.parametrize(
    ("where", "meant"),
    [
        (":8080", Port(None, 8080)),
        ("127.0.0.1:8080", Port("127.0.0.1", 8080)),
        ("[::1]:8080", Port("::1", 8080)),
        ("[::]:80", Port("::", 80)),
        ("/tmp/health:8080", Path("/tmp/health:8080")),
        ("./8080", Path("8080").absolute()),
        (None, None),
    ],
)
def test_an_endpoint_is_a_port_or_a_file(where: str | None, meant: health.Endpoint) -> None:
    assert health.endpoint(where) == meant


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_file_is_there_while_all_is_well_and_gone_afterwards(shop: Shop, options: tuple[str, ...]) -> None:
    file = shop.folder / "health"
    worker = shop.start("--health", str(file), *options)
    until(file.exists, lambda: worker.err)
    told = json.loads(file.read_bytes())
    assert told["ok"] is True
    assert time.time() - file.stat().st_mtime < 10
    assert worker.stop()[0] == 0
    assert not file.exists()
    assert [each for each in os.listdir(shop.folder) if each.startswith("health")] == []


def test_a_file_that_cannot_be_written_is_said_and_tried_again(shop: Shop) -> None:
    folder = shop.folder / "run"
    folder.mkdir()
    (folder / "health").mkdir()  # in the way
    worker = shop.start("--health", str(folder / "health"))
    worker.until("The file of --health can't be written")
    (folder / "health").rmdir()
    until((folder / "health").is_file, lambda: worker.err)
    assert worker.stop()[0] == 0


@pytest.mark.parametrize("where", ["", ":abc", ":-1", "localhost:http", "8080", ":65536"])
def test_what_is_neither_is_refused(where: str) -> None:
    with pytest.raises(typer.BadParameter):
        health.endpoint(where)


def test_a_port_that_the_system_chose_is_told(shop: Shop) -> None:
    worker = shop.start("--health", "127.0.0.1:0")
    worker.until("GET /live and /ready.")
    port = int(worker.err.partition("Health is told at port ")[2].partition(":")[0])
    when_well(port)
    assert worker.stop()[0] == 0


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_worker_that_has_not_reached_its_engine_is_live_and_not_ready(shop: Shop, options: tuple[str, ...]) -> None:
    port, nobody = free_port(), free_port()
    shop.write(f"import bide\nqueue = bide.Queue('redis://127.0.0.1:{nobody}')\n@queue.task('a')\ndef a(): ...\n", head=False)
    worker = shop.start("--health", f":{port}", *options)
    until(lambda: ask(port)[0])
    worker.until("goes on trying")
    assert {path: ask(port, path=path)[0] for path in ("/live", "/live?full", "/ready", "/", "/alive")} == {
        "/live": 200,
        "/live?full": 200,
        "/ready": 503,
        "/": 503,
        "/alive": 503,
    }
    assert worker.stop()[0] == 0


def well(**changed: Any) -> Health:
    return Health(
        **{"seen": time.monotonic(), "running": 1, "done": 2, "failed": 3, "unhandled": 4, "unconfirmed": 5, **changed}
    )


def test_all_is_well_when_each_process_goes_round_and_its_engine_answers() -> None:
    told = report({7: well(), 8: well(failing_since=time.monotonic() - FAILING + 5)}, 2)
    assert told["ok"]
    counts = {"running": 1, "done": 2, "failed": 3, "unhandled": 4, "unconfirmed": 5}
    assert told["processes"][0] == {"process": 7, "ok": True} | counts


@pytest.mark.parametrize(
    "processes",
    [
        {},
        {7: well()},
        {7: well(), 8: Health()},
        {7: well(), 8: well(seen=time.monotonic() - STALE - 1)},
        {7: well(), 8: well(failing_since=time.monotonic() - FAILING - 1)},
    ],
    ids=["none", "one is missing", "one has not begun", "one's loop is blocked", "one's engine fails"],
)
def test_all_is_not_well(processes: dict[int, Health]) -> None:
    assert not report(processes, 2)["ok"]
    blocked = any(each.seen and time.monotonic() - each.seen > STALE for each in processes.values())
    assert report(processes, 2, live=True)["ok"] is not blocked
