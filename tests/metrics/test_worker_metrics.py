"""`bide worker --metrics`: one port for all of its processes, and counters that never fall."""

import os
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.metrics.scraped import Samples, ask, counters, scrape, value
from tests.servers.server import free_port
from tests.worker.processes import Running, Shop, open_shop, until

HANDLERS = """
@queue.task("mail", max_attempts=100, backoff=SOON)
async def mail():
    pass

@queue.task("fails", max_attempts=2, backoff=SOON)
def fails():
    raise ValueError

@queue.task("threads")
async def threads():
    await asyncio.to_thread(stay)

def stay():
    say("stays")
    while not gone("go"):
        time.sleep(0.01)

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


def ended(samples: Samples, topic: str, outcome: str) -> float:
    return value(samples, "bide_ended_total", topic=topic, outcome=outcome) or 0


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "two"])
def test_a_port_tells_what_the_worker_does(shop: Shop, processes: tuple[str, ...]) -> None:
    port = free_port()
    shop.queue.send_many("mail", [None] * 20)
    shop.queue.send_many("fails", [None] * 3)
    shop.queue.send("waits")
    worker = shop.start("--metrics", str(port), "--concurrency", "10", *processes)
    shop.dead("fails", count=3)
    shop.said("waits")
    until(lambda: ended(scrape(port), "mail", "done") == 20)
    until(lambda: ask(port, "/ready")[0] == 200)  # all of its processes are there
    samples = until(lambda: found if ended(found := scrape(port), "fails", "dead") == 3 else None)
    assert ended(samples, "fails", "retried") == 3
    assert value(samples, "bide_begun_total", topic="fails") == 6
    assert value(samples, "bide_lateness_seconds_count", topic="mail") == 20
    assert value(samples, "bide_run_seconds_count", topic="mail") == 20
    assert value(samples, "bide_running", topic="waits") == 1
    places = 20 if processes else 10
    assert (value(samples, "bide_slots", state="busy"), value(samples, "bide_slots", state="free")) == (1, places - 1)
    [info] = [labels for name, labels in samples if name == "bide_worker_info"]
    assert dict(info)["engine"] == "sqlite"
    assert ask(port, "/live")[0] == 200
    status, content_type, _ = ask(port, Accept="application/openmetrics-text;version=1.0.0")
    assert (status, content_type.split(";")[0]) == (200, "application/openmetrics-text")
    shop.touch("go")
    assert worker.stop()[0] == 0


def test_a_page_is_told_while_all_threads_of_the_loop_are_taken(shop: Shop) -> None:
    port, threads = free_port(), min(32, (os.cpu_count() or 1) + 4)
    shop.queue.send_many("threads", [None] * 100)
    worker = shop.start("--metrics", str(port))
    shop.said("stays")
    until(lambda: (value(scrape(port), "bide_running", topic="threads") or 0) > threads, lambda: str(scrape(port)))
    shop.touch("go")
    assert worker.stop()[0] == 0


def test_a_port_takes_only_what_it_should(shop: Shop) -> None:
    port = free_port()
    worker = shop.start("--metrics", f"127.0.0.1:{port}")
    scrape(port)
    assert ask(port, "/")[0] == ask(port, "/metrics/../live")[0] == 404
    assert ask(port, method="POST")[0] == 405
    assert ask(port, method="HEAD") == (200, ask(port)[1], "")
    with socket.create_connection(("127.0.0.1", port)) as nonsense:
        nonsense.sendall(b"\x00\xff" * 200_000)
    assert ask(port, "/metrics?x=1")[0] == 200
    assert worker.stop()[0] == 0
    assert "Traceback" not in worker.err


@pytest.mark.parametrize("where", ["", "x", ":65536", "127.0.0.1:http"])
def test_what_is_no_port_is_refused(shop: Shop, where: str) -> None:
    code, err = shop.ended("--metrics", where)
    assert code == 2
    assert "--metrics" in err


def test_a_port_that_is_taken_ends_it_with_a_sentence(shop: Shop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        code, err = shop.ended("--metrics", where)
    assert code == 1
    assert f"bide: --metrics can't listen at {where}: " in err


HIDDEN = """
import importlib.abc, sys


class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "prometheus_client":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hidden())
"""


def test_without_its_package_it_says_what_to_install(shop: Shop) -> None:
    shop.write(HIDDEN + HANDLERS)
    code, err = shop.ended("--metrics", str(free_port()))
    assert code == 1
    assert 'pip install "bide[metrics]"' in err
    worker = shop.ready()  # which needs none
    assert worker.stop()[0] == 0


def killed_in_the_middle(shop: Shop, messages: int, processes: int) -> None:
    """Kill half of the processes, one after the other, and compare what was counted with what has happened."""
    port = free_port()
    for first in range(0, messages, 1_000):
        shop.queue.send_many("mail", [None] * min(1_000, messages - first))
    worker = shop.start("--metrics", str(port), "--processes", str(processes))
    seen = [scrape(port)]
    open_lots = 0.0
    for number in range(1, processes // 2 + 1):
        while see(seen, port, "mail") <= messages * number / processes:
            pass
        open_lots += kill_one(worker, port)
    until(lambda: see(seen, port, "mail") and not shop.counts("mail").pending and not shop.counts("mail").leased)
    see(seen, port, "mail")
    for before, after in pairwise(map(counters, seen)):
        assert {series: (each, after.get(series)) for series, each in before.items() if after.get(series, -1.0) < each} == {}
    done = ended(seen[-1], "mail", "done")
    assert messages - open_lots <= done <= messages
    assert shop.counts("mail").dead == 0
    assert worker.stop()[0] == 0


def see(seen: list[Samples], port: int, topic: str) -> float:
    seen.append(scrape(port))
    return ended(seen[-1], topic, "done")


def kill_one(worker: Running, port: int) -> float:
    """How many messages it may have had: all that its process can hold."""
    [first, *_] = worker.children()
    os.kill(first, 9)
    until(lambda: first not in worker.children())
    return 1_000.0


def test_counters_never_fall_and_never_say_too_much(shop: Shop) -> None:
    killed_in_the_middle(shop, 4_000, 2)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(600)
def test_so_they_do_of_four_processes_on_redis(tmp_path: Path, redis_url: str) -> None:
    with open_shop(tmp_path, redis_url) as made:
        made.write(HANDLERS)
        killed_in_the_middle(made, 100_000, 4)
