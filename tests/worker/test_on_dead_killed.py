"""on_dead is called for a message whose last attempt killed its process, by a process that lives; no handler begins again."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.processes import Running, Shop, open_shop

HANDLERS = """
async def told(delivery, reason):
    say("told", delivery.topic, delivery.body, delivery.attempt, reason)

def told_in_a_thread(delivery, reason):
    say("told", delivery.topic, delivery.body, delivery.attempt, reason)

async def dies_too(delivery, reason):
    say("told", delivery.topic, delivery.body, delivery.attempt, reason)
    os._exit(7)

async def dies_once(delivery, reason):
    say("told", delivery.topic, delivery.body, delivery.attempt, reason)
    if not gone("once"):
        open("once", "x").close()
        os._exit(7)

async def lasts(delivery, reason):
    say("told", delivery.topic, delivery.body, delivery.attempt, reason)
    while not gone("go"):
        await asyncio.sleep(0.01)
    say("told to the end")

def ends(how):
    if how == "exit":
        os._exit(9)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.string_at(0)

@queue.task("async", backoff=SOON, on_dead=told)
async def in_loop(how: str):
    say("began", "async", current().attempt)
    ends(how)

@queue.task("thread", backoff=SOON, on_dead=told_in_a_thread)
def in_thread(how: str):
    say("began", "thread", current().attempt)
    ends(how)

@queue.task("batch", batch=5, backoff=SOON, on_dead=told)
async def in_batch(hows: list[str]):
    say("began", "batch", len(hows))
    ends(hows[0])

@queue.task("limited", lock="one", concurrency=2, backoff=SOON, on_dead=told)
async def limited(how: str):
    say("began", "limited", current().attempt)
    ends(how)

@queue.task("dies.too", on_dead=dies_too)
async def with_a_deadly_on_dead(how: str):
    say("began", "dies.too", current().attempt)
    ends(how)

@queue.task("dies.once", on_dead=dies_once)
async def with_an_on_dead_that_dies_once(how: str):
    say("began", "dies.once", current().attempt)
    ends(how)

@queue.task("lasts", on_dead=lasts)
async def with_a_long_on_dead(how: str):
    say("began", "lasts", current().attempt)
    ends(how)

@queue.task("silent")
async def silent(how: str):
    say("began", "silent", current().attempt)
    ends(how)

@queue.task("waits", on_dead=told)
async def waits(how: str):
    say("began", "waits", current().attempt)
    while not gone("go"):
        await asyncio.sleep(0.01)
"""


SLOW_START = """
if "--killed" in sys.orig_argv:
    time.sleep(3)
"""


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("redis", marks=pytest.mark.server),
        pytest.param("postgres", marks=[pytest.mark.server, pytest.mark.slow]),
    ]
)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    with open_shop(tmp_path, url) as made:
        made.write(HANDLERS)
        yield made


def start(shop: Shop, *more: str, lease: str = "100s", grace: str = "2s") -> Running:
    return shop.start("--processes", "1", "--lease", lease, "--grace", grace, *more)


@pytest.mark.always
@pytest.mark.parametrize(
    ("topic", "how", "attempts", "said"),
    [
        ("async", "exit", 1, "exit code 9"),
        ("thread", "kill", 2, "SIGKILL"),
        ("batch", "exit", 2, "exit code 9"),
        ("limited", "segfault", 1, "SIGSEGV"),  # its lock is kept until its lease ends
    ],
)
def test_it_is_called_when_the_last_attempt_has_killed_its_process(
    shop: Shop, topic: str, how: str, attempts: int, said: str
) -> None:
    shop.queue.send(topic, how if topic == "batch" else {"how": how}, max_attempts=attempts)
    worker = start(shop)
    [dead] = shop.dead(topic)
    [told] = shop.lines("told")
    began = shop.lines("began", topic)
    assert len(began) == attempts
    assert told.words[3] == dead.attempt == attempts
    assert told.words[4] == dead.last_error
    assert said in told.words[4]
    assert told.pid not in {line.pid for line in began}
    assert f"is buried: {dead.last_error}" in worker.err
    assert worker.stop()[0] == 0
    assert (len(shop.lines("told")), len(shop.lines("began"))) == (1, attempts)


def test_only_what_was_in_its_last_attempt_is_buried_and_the_rest_comes_back(shop: Shop) -> None:
    for n in range(5):
        shop.queue.send("waits", {"how": f"last {n}"}, max_attempts=1)
        shop.queue.send("waits", {"how": f"first {n}"}, max_attempts=2)
    start(shop)
    shop.said("began", "waits", count=10)
    shop.queue.send("silent", {"how": "kill"}, max_attempts=1)
    shop.dead("waits", count=5)
    shop.said("began", "waits", 2, count=5)
    shop.touch("go")
    shop.empty()
    told = shop.lines("told")
    assert sorted(line.words[2]["how"] for line in told) == [f"last {n}" for n in range(5)]
    assert len(shop.lines("began", "waits")) == 15
    assert shop.counts("silent").dead == 1


def test_many_that_kill_their_process_one_after_the_other_are_all_told(shop: Shop) -> None:
    for _ in range(4):
        shop.queue.send("async", {"how": "exit"}, max_attempts=1)
    start(shop, "--concurrency", "1")
    shop.dead("async", count=4)
    assert len(shop.lines("told")) == len(shop.lines("began")) == 4


def test_the_leases_are_kept_while_the_next_process_starts(shop: Shop) -> None:
    shop.write(HANDLERS + SLOW_START)
    shop.queue.send("async", {"how": "exit"}, max_attempts=1)
    start(shop, lease="1s")
    [dead] = shop.dead("async")
    [told] = shop.lines("told")
    assert told.words[4] == dead.last_error
    assert len(shop.lines("began")) == 1


def test_the_leases_are_kept_while_it_lasts_and_other_messages_wait_no_longer_than_10_s(shop: Shop) -> None:
    shop.queue.send("lasts", {"how": "exit"}, max_attempts=1)
    start(shop, lease="1s")
    shop.said("told")
    shop.queue.send("waits", {"how": ""})
    shop.said("began", "waits")
    assert shop.counts("lasts").leased == 1
    shop.touch("go")
    shop.dead("lasts")
    assert len(shop.lines("told to the end")) == 1
    assert len(shop.lines("began", "lasts")) == len(shop.lines("told")) == 1


def test_a_call_that_kills_its_process_is_made_again(shop: Shop) -> None:
    shop.queue.send("dies.once", {"how": "exit"}, max_attempts=1)
    start(shop)
    [dead] = shop.dead("dies.once")
    first, second = shop.lines("told")
    assert first.words == second.words
    assert first.words[4] == dead.last_error
    assert first.pid != second.pid
    assert len(shop.lines("began")) == 1


@pytest.mark.always
def test_after_three_processes_the_message_is_buried_without_it(shop: Shop) -> None:
    shop.queue.send("dies.too", {"how": "exit"}, max_attempts=1)
    worker = start(shop)
    [dead] = shop.dead("dies.too")
    told = shop.lines("told")
    assert len({line.pid for line in told}) == len(told) == 3
    assert {line.words[4] for line in told} == {dead.last_error}
    assert len(shop.lines("began")) == 1
    worker.until("1 message is buried without a call of on_dead")


def test_a_stop_buries_it_and_no_handler_begins_again(shop: Shop) -> None:
    shop.queue.send("lasts", {"how": "exit"}, max_attempts=1)
    worker = start(shop, grace="200ms")
    shop.said("told")
    assert worker.stop()[0] == 0
    [dead] = shop.dead("lasts")
    assert "exit code 9" in (dead.last_error or "")
    again = start(shop)
    again.until("→")
    shop.queue.send("silent", {"how": "exit"}, max_attempts=1)
    shop.dead("silent")
    assert len(shop.lines("began", "lasts")) == 1


def test_a_stop_while_the_next_process_starts_buries_it(shop: Shop) -> None:
    shop.write(HANDLERS + SLOW_START.replace("3", "60"))
    shop.queue.send("async", {"how": "exit"}, max_attempts=1)
    worker = start(shop, grace="1s")
    worker.until("is replaced")
    assert worker.stop()[0] == 0
    [dead] = shop.dead("async")
    assert "exit code 9" in (dead.last_error or "")
    assert not shop.lines("told")


def test_when_all_of_it_dies_meanwhile_the_handler_does_not_begin_again(shop: Shop) -> None:
    shop.queue.send("lasts", {"how": "exit"}, max_attempts=1)
    worker = start(shop, lease="1s")
    shop.said("told")
    left = worker.children()
    worker.send(signal.SIGKILL)
    for each in left:
        os.kill(each, signal.SIGKILL)
    worker.wait()
    start(shop, lease="1s")
    [dead] = shop.dead("lasts")
    assert dead.attempt == 1
    assert len(shop.lines("began")) == len(shop.lines("told")) == 1
