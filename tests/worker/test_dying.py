"""Handlers that take their process down, or stay when their time is up: dead letters in the end, with the reason."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bide import Outgoing
from bide.worker.recovery import APART, WITHIN, delays
from bide.worker.slots import AHEAD
from tests.worker.processes import Running, Shop, open_shop, until

slow = pytest.mark.slow

HANDLERS = """
@queue.task("exit", backoff=SOON)
async def exits():
    say("exit", current().attempt)
    os._exit(3)

@queue.task("exit.beside", backoff=SOON)
async def exits_beside():
    say("exit.beside", current().attempt)
    asyncio.get_running_loop().call_later(0.01, sys.exit, 3)
    await asyncio.sleep(1000)

@queue.task("interrupt", backoff=SOON)
async def interrupts():
    say("interrupt", current().attempt)
    await asyncio.gather(asyncio.sleep(1000), interrupted())

async def interrupted():
    raise KeyboardInterrupt

@queue.task("stop.loop", backoff=SOON)
async def stops_the_loop():
    say("stop.loop", current().attempt)
    asyncio.get_running_loop().stop()
    await asyncio.sleep(1000)

@queue.task("cancel.all", backoff=SOON)
async def cancels_all():
    say("cancel.all", current().attempt)
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(1000)

@queue.task("segfault", backoff=SOON)
def segfaults():
    say("segfault", current().attempt)
    ctypes.string_at(0)

@queue.task("kill", backoff=SOON)
def kills():
    say("kill", current().attempt)
    os.kill(os.getpid(), signal.SIGKILL)

@queue.task("memory", backoff=SOON)
def eats():
    import resource
    say("memory", current().attempt)
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    bytearray(8 << 30)

@queue.task("calm")
async def calm(n: int):
    await asyncio.sleep(1)
    say("calm", n, current().attempt)

@queue.task("poison", backoff=SOON)
async def poison():
    say("poison", current().attempt)
    await asyncio.sleep(0.1)
    os.kill(os.getpid(), 9)

@queue.task("stays", timeout="100ms", backoff=SOON)
def stays():
    say("stays", current().attempt)
    while not gone("go"):
        time.sleep(0.02)
    say("expired", current().expired)

@queue.task("beside")
async def beside(n: int):
    await asyncio.sleep(0.01)
    say("beside", n)

@queue.task("long")
async def long(n: int):
    say("long", n, current().attempt)
    try:
        while not gone("go"):
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        say("cancelled", n, current().attempt, current().expired)
        raise
    say("handled", n, current().attempt)

@queue.task("thread")
def thread(n: int):
    say("thread", n, current().attempt)
    while not gone("go") and not current().expired:
        time.sleep(0.02)
    say("saw", n, current().attempt, current().expired)
"""
QUICK = """
begun = []

@queue.task("quick")
async def quick(n: int):
    begun.append(n)
    attempt = current().attempt
    if attempt > 1:
        say("again", n, attempt)
    elif n in (1_500, 2_500, 3_500, 4_500) and not gone("killed"):
        time.sleep(0.5)  # the next claim is answered meanwhile
        held = Queue({url!r}).stats("quick").leased
        if held > 900 or n == 4_500:
            open("killed", "w").close()
            say("held", held, begun)
            os.kill(os.getpid(), signal.SIGKILL)
"""
REASON = {
    "exit": "exit code 3",
    "exit.beside": "exit code 3",
    "interrupt": "exit code 130",
    "stop.loop": "exit code 1",
    "cancel.all": "exit code 1",
    "segfault": "SIGSEGV",
    "kill": "SIGKILL",
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        made.write(HANDLERS)
        yield made


@pytest.mark.always
@pytest.mark.parametrize(
    "how",
    [pytest.param("exit", marks=slow), "exit.beside", "interrupt", "stop.loop", "cancel.all", "segfault", "kill"],
)
def test_a_message_that_kills_its_process_is_buried_after_its_last_attempt(shop: Shop, how: str) -> None:
    shop.queue.send(how)
    worker = shop.start("--processes", "1", "--lease", "100s", "--grace", "2s")
    [dead] = shop.dead(how)
    assert dead.attempt == 3
    assert "worker process" in (dead.last_error or "")
    assert REASON[how] in (dead.last_error or "")
    assert [line.words[1] for line in shop.lines(how)] == [1, 2, 3]
    assert len({line.pid for line in shop.lines(how)}) == 3
    assert worker.stop()[0] == 0
    assert shop.counts().dead == 1


@pytest.mark.parametrize(
    "how",
    ["exit", "exit.beside", "stop.loop", "cancel.all", pytest.param("segfault", marks=slow), pytest.param("kill", marks=slow)],
)
def test_it_is_buried_without_a_supervisor_too(shop: Shop, how: str) -> None:
    shop.queue.send(how, max_attempts=2)
    arguments = ("--lease", "500ms", "--grace", "2s")
    worker: Running = shop.start(*arguments)

    def buried() -> bool:
        nonlocal worker
        if worker.process.poll() is not None:
            worker = shop.start(*arguments)
        return shop.counts(how).dead == 1

    until(buried, lambda: worker.err)
    [dead] = shop.dead(how)
    assert dead.attempt == 2
    assert dead.last_error
    assert len(shop.lines(how)) == 2
    assert shop.counts(how).ready == 0


def test_what_runs_beside_it_is_done_in_the_end(shop: Shop) -> None:
    worker = shop.start("--processes", "2", "--concurrency", "4", "--grace", "2s")
    shop.queue.send_many("beside", [Outgoing({"n": number}, max_attempts=10) for number in range(100)])
    shop.queue.send("exit", max_attempts=2)
    shop.queue.send_many("beside", [Outgoing({"n": number}, max_attempts=10) for number in range(100, 200)])
    shop.dead("exit")
    shop.empty()
    assert {line.words[1] for line in shop.lines("beside")} == set(range(200))
    assert shop.counts("beside").dead == 0
    assert worker.stop()[0] == 0


@slow
def test_calm_neighbours_of_a_message_that_kills_its_process_are_never_buried(shop: Shop) -> None:
    shop.queue.send_many("calm", [{"n": number} for number in range(4)])
    shop.queue.send("poison")
    shop.queue.send_many("calm", [{"n": number} for number in range(4, 8)])
    worker = shop.start("--processes", "1", "--lease", "100s", "--grace", "2s")
    [dead] = shop.dead("poison")
    assert dead.attempt == 3
    assert "was killed by signal 9 (SIGKILL)" in (dead.last_error or "")
    assert [line.words[1] for line in shop.lines("poison")] == [1, 2, 3]
    shop.said("calm", count=8)
    shop.empty()
    assert Counter(line.words for line in shop.lines("calm")) == Counter(("calm", number, 3) for number in range(8))
    assert shop.counts("calm").dead == 0
    assert worker.stop()[0] == 0


def test_what_was_lost_with_its_process_twice_comes_back_one_by_one() -> None:
    given = sorted(delays([2] * 20))
    assert 1_600 <= given[0] <= 2_400
    assert all(later - earlier >= APART for earlier, later in pairwise(given))
    assert given[-1] <= 2_400 + 19 * APART
    assert len({tuple(delays([2] * 5)) for _ in range(50)}) > 1  # each time in another order


def test_of_many_none_waits_for_much_longer_than_of_a_hundred() -> None:
    given = sorted(delays([2] * 500))
    assert all(later - earlier >= WITHIN // 500 for earlier, later in pairwise(given))
    assert given[-1] <= 2_400 + WITHIN


def test_the_first_time_it_is_back_at_once_and_no_backoff_is_cut_short() -> None:
    given = delays([1, 2, 1, 6])
    assert (given[0], given[2]) == (0, 0)
    assert 1_600 <= given[1] <= 2_400
    assert 25_600 <= given[3] <= 38_400
    assert delays([]) == []


@pytest.mark.always
def test_of_a_thousand_that_a_killed_process_held_only_those_of_one_claim_have_had_an_attempt(shop: Shop) -> None:
    shop.write(QUICK.format(url=shop.url))
    for first in range(0, 5_000, 1_000):
        shop.queue.send_many("quick", [{"n": number} for number in range(first, first + 1_000)])
    worker = shop.start("--processes", "1", "--lease", "100s", "--grace", "2s")
    [held] = shop.said("held")
    shop.empty()
    begun = held.words[2]
    again = {line.words[1]: line.words[2] for line in shop.lines("again")}
    assert begun[-1] in again
    assert len(again.keys() - begun) < AHEAD
    assert set(again.values()) == {2}
    assert shop.counts("quick").dead == 0
    assert worker.stop()[0] == 0


def test_memory_that_cannot_be_had_is_a_plain_failure(shop: Shop) -> None:
    shop.queue.send("memory", max_attempts=2)
    worker = shop.start("--grace", "2s")
    [dead] = shop.dead("memory")
    assert "MemoryError" in (dead.last_error or "")
    assert dead.attempt == 2
    assert len({line.pid for line in shop.lines("memory")}) == 1
    assert worker.stop()[0] == 0


def test_a_process_with_a_handler_that_stays_after_its_timeout_is_replaced(shop: Shop) -> None:
    last = shop.queue.send("stays", max_attempts=1)
    sent = shop.queue.send("stays")
    worker = shop.start("--processes", "1", "--lease", "100s", "--grace", "1s")
    [began, _] = shop.said("stays", 1, count=2)
    [again] = shop.said("stays", 2)
    print(f"a handler that stays after its timeout: its next attempt after {again.at - began.at:.2f} s")
    assert "asked to be replaced" in worker.err
    assert len({line.pid for line in shop.lines("stays")}) == 2
    info = shop.queue.get(sent)
    assert info is not None
    assert "TimeoutError" in (info.last_error or "")
    [dead] = shop.dead("stays")
    assert dead.id == last.id
    assert "TimeoutError" in (dead.last_error or "")
    shop.touch("go")
    shop.said("expired", False)
    assert worker.stop()[0] == 0


@pytest.mark.parametrize("topic", ["long", pytest.param("thread", marks=slow)])
def test_what_a_worker_says_of_messages_that_were_taken_from_it_is_not_heard(shop: Shop, topic: str) -> None:
    count = 100 if topic == "long" else 30
    paused = shop.start(
        "--topics", topic, "--lease", "1s", "--concurrency", str(count), "--threads", str(count), "--grace", "5s"
    )
    shop.queue.send_many(topic, [{"n": number} for number in range(count)])
    shop.said(topic, count=count)
    other = shop.start(
        "--topics", topic, "--lease", "1s", "--concurrency", str(count), "--threads", str(count), "--grace", "5s"
    )
    other.until("→")
    os.kill(paused.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    taken = shop.said(topic, count=2 * count)[count:]
    assert {line.pid for line in taken} == {other.pid}
    until(lambda: time.monotonic() > stopped + 2)  # two leases
    os.kill(paused.pid, signal.SIGCONT)
    told = shop.said("cancelled" if topic == "long" else "saw", count=count)
    assert {line.pid for line in told} == {paused.pid}
    assert {line.words[1] for line in told} == set(range(count))
    assert all(line.words[3] for line in told)  # expired
    stats = shop.counts(topic)
    assert (stats.leased, stats.ready, stats.dead) == (count, 0, 0)
    assert paused.err.count("was lost in attempt 1") == count
    shop.touch("go")
    shop.empty()
    ended = shop.lines("handled" if topic == "long" else "saw")
    by_other = Counter(line.words[1] for line in ended if line.pid == other.pid)
    assert by_other == Counter(range(count))
    assert paused.stop()[0] == 0
    assert other.stop()[0] == 0
    assert len(shop.lines(topic)) == 2 * count
    assert "was lost" not in other.err


@slow
def test_a_late_ack_is_refused_also_when_the_handler_had_ended_before(shop: Shop) -> None:
    """Handlers that are over the moment the worker goes on, before its heartbeat has looked."""
    paused = shop.start("--topics", "long", "--lease", "1s", "--concurrency", "100", "--grace", "5s")
    shop.queue.send_many("long", [{"n": number} for number in range(100)])
    shop.said("long", count=100)
    os.kill(paused.pid, signal.SIGSTOP)
    other = shop.start("--topics", "long", "--lease", "1s", "--concurrency", "100", "--grace", "5s")
    shop.said("long", count=200)
    os.kill(other.pid, signal.SIGSTOP)
    shop.touch("go")
    os.kill(paused.pid, signal.SIGCONT)
    until(lambda: paused.err.count("was lost in attempt 1") == 100, lambda: paused.err)
    handled = {line.words[2] for line in shop.lines("handled") if line.pid == paused.pid}
    assert handled <= {1, 3}  # its own late ones; and those that it took when the other one's leases were over
    os.kill(other.pid, signal.SIGCONT)
    shop.empty()
    assert {line.words[1] for line in shop.lines("handled")} == set(range(100))
    assert paused.stop()[0] == 0
    assert other.stop()[0] == 0
