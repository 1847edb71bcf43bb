"""SIGTERM and Ctrl-C: a worker takes nothing more, gives back, waits its grace, and ends in time whatever its handlers do."""

import asyncio
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from bide import Outgoing
from bide.worker import signals
from tests.worker.processes import Shop, alive, heard, listens, open_shop, until, without_uvloop

long = pytest.mark.skipif("BIDE_LONG" not in os.environ, reason="minutes of stops: BIDE_LONG=1 runs them")
MARGIN = 3.0  # seconds more than is promised, for a machine that is busy with something else
PROMISED = 1.0  # seconds after the grace
WAITS = {"22", "232", "281"}  # epoll_wait and epoll_pwait, on Intel and ARM

STUCK = """
@queue.task("thread")
def thread():
    say("thread")
    time.sleep(1000)

@queue.task("deaf")
async def deaf():
    say("deaf")
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            say("cancelled")

@queue.task("pool")
async def pool():
    say("pool")
    await asyncio.to_thread(time.sleep, 1000)

@queue.task("own")
def own():
    from concurrent.futures import ThreadPoolExecutor
    say("own")
    ThreadPoolExecutor(1).submit(time.sleep, 1000).result()

@queue.task("left")
async def left():
    threading.Thread(target=time.sleep, args=(1000,)).start()
    say("left")

@queue.task("block")
async def block():
    say("block")
    time.sleep(1000)

@queue.task("bits")
async def bits():
    say("bits")
    while True:
        try:
            await asyncio.sleep(0)
            time.sleep(0.2)
        except asyncio.CancelledError:
            say("cancelled")

@queue.task("slow")
async def slow(seconds: float = 0.3):
    say("begun")
    await asyncio.sleep(seconds)
    say("ended")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        yield made


ALONE = [("alone", how) for how in ("thread", "deaf", "pool", "own", "left", "bits")]
SUPERVISED = [("supervised", "deaf"), pytest.param("supervised", "own", marks=pytest.mark.slow)]
WITHOUT_UVLOOP = [
    pytest.param("without uvloop", how, marks=pytest.mark.slow) for how in ("thread", "deaf", "pool", "own", "left")
]


@pytest.mark.parametrize(("where", "how"), [*ALONE, *SUPERVISED, *WITHOUT_UVLOOP])
def test_a_stuck_handler_does_not_keep_the_worker_from_ending_in_time(shop: Shop, where: str, how: str) -> None:
    shop.write(STUCK)
    sent = shop.queue.send(how, max_attempts=1)
    options = ("--processes", "1") if where == "supervised" else ()
    worker = shop.start("--grace", "200ms", *options, env=without_uvloop(shop.folder) if where == "without uvloop" else None)
    shop.said(how)
    code, took = worker.stop()
    print(f"a handler that is stuck ({how}), {where}: {took - 0.2:.2f} s after the grace")
    assert code == 0, worker.err
    assert took < 0.2 + PROMISED + MARGIN
    info = shop.queue.get(sent)
    if how == "left":
        assert info is None  # it was handled
    else:
        assert info is not None
        assert (info.state, info.attempt) == ("ready", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_a_signal_lets_handlers_end_within_the_grace(shop: Shop, number: int, options: tuple[str, ...]) -> None:
    shop.write(STUCK)
    shop.queue.send_many("slow", [{}] * 20)
    worker = shop.start("--grace", "10s", "--concurrency", "5", *options)
    shop.said("begun", count=5)
    code, took = worker.stop(number)
    begun, ended = len(shop.lines("begun")), len(shop.lines("ended"))
    print(f"signal {number} {options}: {took:.2f} s")
    assert code == 0, worker.err
    assert begun == ended
    assert took < 10
    stats = shop.counts("slow")
    assert (stats.leased, stats.scheduled, stats.ready) == (0, 0, 20 - ended)


def test_nothing_more_is_taken_after_the_signal_while_handlers_go_on(shop: Shop) -> None:
    shop.write(STUCK)
    shop.queue.send("slow", {"seconds": 1.0})
    worker = shop.ready("--grace", "10s")
    shop.said("begun")
    worker.send()
    until(lambda: heard(worker.pid, signal.SIGTERM))
    time.sleep(0.1)  # the loop has gone round then; what comes later is for others
    late = shop.queue.send("slow")
    assert worker.wait() == 0
    assert len(shop.lines("ended")) == 1
    info = shop.queue.get(late)
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)


def test_nohup_keeps_a_worker_from_hearing_that_its_terminal_was_closed(shop: Shop) -> None:
    shop.write(STUCK)
    worker = shop.ready("--grace", "10s", within=("nohup",))
    worker.send(signal.SIGHUP)
    shop.queue.send("slow")
    shop.said("ended")
    assert worker.stop()[0] == 0


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_process_that_ends_calls_what_it_has_to_and_collects_no_garbage_any_more(
    shop: Shop, options: tuple[str, ...]
) -> None:
    """Collecting all that was ever imported takes longer than the stop itself."""
    shop.write("import atexit, gc\natexit.register(lambda: say('exit', gc.get_freeze_count()))\n" + STUCK)
    worker = shop.ready("--grace", "10s", *options)
    shop.queue.send("slow", {"seconds": 0})
    shop.said("ended")
    assert worker.stop()[0] == 0
    exits = shop.lines("exit")
    assert len(exits) == 1 + len(options) // 2
    assert all(line.words[1] > 10_000 for line in exits)


LEFT = """
@queue.task("closes")
def closes():
    sys.stdout.close()
    sys.stderr.close()
    say("closes")

async def raises(error):
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        raise error from None

@queue.task("exits")
async def exits():
    queue.left = asyncio.get_running_loop().create_task(raises(SystemExit(3)))
    say("exits")

@queue.task("interrupts")
async def interrupts():
    queue.left = asyncio.get_running_loop().create_task(raises(KeyboardInterrupt()))
    say("interrupts")
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("closes", ""),
        ("exits", "raised SystemExit(3) when it was cancelled"),
        ("interrupts", "raised KeyboardInterrupt() when it was cancelled"),
    ],
)
def test_what_handlers_leave_behind_does_not_change_the_exit_code(shop: Shop, how: str, said: str) -> None:
    shop.write(LEFT)
    worker = shop.ready("--grace", "10s")
    shop.queue.send(how)
    shop.said(how)
    shop.empty()
    assert worker.stop()[0] == 0, worker.err
    assert said in worker.err
    assert ("Traceback" in worker.err) == bool(said)


class Ended(Exception):
    """By a second signal."""


async def test_two_signals_within_a_moment_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One Ctrl-C reaches a process from its terminal, and once more from a parent that passes it on."""
    now = 100.0
    stops: list[float] = []

    def end(number: int) -> None:
        raise Ended

    monkeypatch.setattr(signals, "end_by", end)
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: now))
    with signals.stopped_by_signals(asyncio.get_running_loop(), lambda: stops.append(now)):
        signal.raise_signal(signal.SIGINT)
        now += 0.049
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        assert len(stops) == 1
        now += 0.002
        with pytest.raises(Ended):
            signal.raise_signal(signal.SIGTERM)


def system_call(thread: threading.Thread) -> str:
    """The number of the one that it waits in."""
    return Path(f"/proc/self/task/{thread.native_id}/syscall").read_text(encoding="ascii").split()[0]


loops = pytest.mark.parametrize("new_event_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
NewEventLoop = Callable[[], asyncio.AbstractEventLoop]


def wakes() -> int:
    """The number of the file that signals are written to."""
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number)
    return number


def signal_by_another_thread() -> None:
    """Once this one sleeps."""

    def signal_myself() -> None:
        until(lambda: system_call(threading.main_thread()) in WAITS)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    threading.Thread(target=signal_myself).start()


@loops
def test_a_signal_is_heard_whichever_thread_it_comes_to(new_event_loop: NewEventLoop) -> None:
    """The system gives one to another thread while this one has to hear of the end of a child, for example."""

    async def main() -> None:
        found, stopped = wakes(), asyncio.Event()
        with signals.stopped_by_signals(asyncio.get_running_loop(), stopped.set):
            signal_by_another_thread()
            await stopped.wait()
        assert wakes() == found

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
        runner.run(main())


@loops
def test_a_program_that_signals_wake_by_a_file_of_its_own_is_woken_with_the_worker(new_event_loop: NewEventLoop) -> None:
    """As one that reads it in a thread: that does not wake the loop."""

    async def main() -> None:
        stopped = asyncio.Event()
        found = signal.set_wakeup_fd(writer.fileno())
        with signals.stopped_by_signals(asyncio.get_running_loop(), stopped.set):
            signal_by_another_thread()
            await stopped.wait()
            assert await asyncio.to_thread(reader.recv, 100) == bytes([signal.SIGTERM])
        assert signal.set_wakeup_fd(found) == writer.fileno()

    reader, writer = socket.socketpair()
    with reader, writer, asyncio.Runner(loop_factory=new_event_loop) as runner:
        writer.setblocking(False)
        runner.run(main())


@loops
def test_a_handler_that_is_added_to_the_loop_beside_a_worker_stays_when_that_has_ended(new_event_loop: NewEventLoop) -> None:
    async def main() -> None:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        with signals.stopped_by_signals(loop, heard.set):
            loop.add_signal_handler(signal.SIGUSR1, heard.set)
        signal.raise_signal(signal.SIGUSR1)
        await heard.wait()
        loop.remove_signal_handler(signal.SIGUSR1)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


@loops
@pytest.mark.parametrize("first", [0, 1])
def test_each_of_two_workers_is_asked_to_stop_and_the_last_one_ends_the_listening(
    new_event_loop: NewEventLoop, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever ends first. What was there before is there again."""

    def end(number: int) -> None:
        raise Ended

    async def main() -> None:
        loop, found = asyncio.get_running_loop(), wakes()
        asked: list[str] = []
        both = [signals.stopped_by_signals(loop, partial(asked.append, name)) for name in "ab"]
        for each in both:
            each.__enter__()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        assert asked == ["a", "b"]
        both.pop(first).__exit__(None, None, None)
        with pytest.raises(Ended):
            signal.raise_signal(signal.SIGTERM)
        both.pop().__exit__(None, None, None)
        assert (wakes(), signal.getsignal(signal.SIGTERM)) == (found, before)

    monkeypatch.setattr(signals, "end_by", end)
    monkeypatch.setattr(signals, "TOGETHER", 0.0)
    before = signal.getsignal(signal.SIGTERM)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize(
    ("how", "number", "env"),
    [
        ("block", signal.SIGTERM, "uvloop"),
        ("block", signal.SIGINT, "asyncio"),
        ("deaf", signal.SIGINT, "uvloop"),
        ("thread", signal.SIGTERM, "asyncio"),
    ],
)
def test_a_second_signal_ends_the_worker_at_once(shop: Shop, how: str, number: int, env: str) -> None:
    shop.write(STUCK)
    shop.queue.send(how)
    worker = shop.start("--grace", "100s", env=without_uvloop(shop.folder) if env == "asyncio" else None)
    shop.said(how)
    code, took = worker.insist(number)
    assert code == -number
    assert took < MARGIN


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_process_that_a_handler_has_forked_can_be_terminated(shop: Shop, options: tuple[str, ...]) -> None:
    shop.write(
        """
@queue.task("forks")
def forks():
    import multiprocessing
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
    forked.start()
    time.sleep(0.1)
    forked.terminate()
    forked.join(5)
    say("forked", forked.exitcode)
    forked.kill()
    forked.join()
"""
    )
    shop.queue.send("forks")
    worker = shop.start("--grace", "1s", *options)
    [line] = shop.said("forked")
    assert line.words[1] == -signal.SIGTERM
    assert worker.stop()[0] == 0


OWN_IDS = ("unshare", "--pid", "--fork", "--kill-child")


def can_be_process_1() -> bool:
    try:
        return subprocess.run([*OWN_IDS, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif("not can_be_process_1()", reason="needs unshare, and the right to use it")
def test_process_1_of_a_container_is_ended_by_signals_too(shop: Shop) -> None:
    """The kernel spares it what is not handled."""
    shop.write(STUCK)
    shop.queue.send("block")
    around = shop.start("--grace", "100s", within=OWN_IDS)
    shop.said("block")
    [pid] = around.children()

    def ended() -> bool:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return not alive(pid)

    until(ended)
    assert around.wait() in (1, 128 + signal.SIGTERM)


def test_a_loop_that_is_blocked_for_ever_ends_with_its_supervisor_and_costs_no_attempt(shop: Shop) -> None:
    shop.write(STUCK)
    sent = shop.queue.send("block", max_attempts=1)
    worker = shop.start("--grace", "200ms", "--processes", "1")
    shop.said("block")
    code, took = worker.stop()
    print(f"a loop that is blocked for ever, supervised: {took - 0.2:.2f} s after the grace")
    assert code == 0, worker.err
    assert took < 0.2 + PROMISED + MARGIN
    info = shop.queue.get(sent)
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)


@pytest.mark.parametrize("env", ["uvloop", "asyncio"])
def test_a_loop_that_is_blocked_for_ever_keeps_no_lone_worker_from_ending_and_costs_no_attempt(shop: Shop, env: str) -> None:
    """Its neighbour that waits, and one in a thread, cost none either; one that was done is acked."""
    shop.write(STUCK)
    worker = shop.start("--grace", "200ms", "--lease", "100s", env=without_uvloop(shop.folder) if env == "asyncio" else None)
    others = [shop.queue.send("thread", max_attempts=1), shop.queue.send("slow", {"seconds": 1000}, max_attempts=1)]
    shop.said("thread")
    shop.said("begun")
    sent = shop.queue.send("block", max_attempts=1)
    shop.said("block")
    code, took = worker.stop()
    print(f"a loop that is blocked for ever, alone: {took - 0.2:.2f} s after the grace")
    assert code == 0, worker.err
    assert took < 0.2 + PROMISED + MARGIN
    for each in (sent, *others):
        info = shop.queue.get(each)
        assert info is not None
        assert (info.state, info.attempt) == ("ready", 0)
    assert "The event loop is blocked" in worker.err
    assert "time.sleep(1000)" in worker.err  # where


def test_a_file_that_is_locked_keeps_no_worker_with_a_blocked_loop_from_ending(shop: Shop) -> None:
    """Then nothing can be given back."""
    shop.write(STUCK)
    worker = shop.start("--grace", "0")
    shop.queue.send("block")
    shop.said("block")
    locked = sqlite3.connect(shop.folder / "shop.db", isolation_level=None)
    try:
        locked.execute("begin immediate")
        code, took = worker.stop()
    finally:
        locked.close()
    assert code == 0, worker.err
    assert took < PROMISED + MARGIN


def test_a_worker_in_code_ends_in_time_with_a_blocked_loop_where_it_listens_to_signals(shop: Shop) -> None:
    code = "import asyncio, shop; asyncio.run(shop.Worker(shop.queue, grace='100ms').run()); shop.say('over')"
    shop.write(STUCK)
    sent = shop.queue.send("block", max_attempts=1)
    process = subprocess.Popen([sys.executable, "-c", code], cwd=shop.folder, stderr=subprocess.DEVNULL)
    try:
        shop.said("block")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    info = shop.queue.get(sent)
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)
    assert not shop.lines("over")


def test_a_signal_while_the_worker_starts_ends_it_too(shop: Shop) -> None:
    shop.write("time.sleep(1)\n" + STUCK)
    shop.queue.send("slow")
    for delay in (0.05, 0.2, 0.5):
        worker = shop.start("--processes", "1")
        time.sleep(delay)  # any instant will do
        code, took = worker.stop()
        assert code in (0, -signal.SIGTERM)
        assert took < 5
    assert shop.counts("slow").ready == 1


LOAD = """
@queue.task("quick")
async def quick(n: int):
    say("quick", n)

@queue.task("slowly")
async def slowly(n: int):
    await asyncio.sleep(n % 10 / 40)
    say("slowly", n)

@queue.task("once", max_attempts=1)
async def once(n: int):
    await asyncio.sleep(0.02)
    say("once", n)

@queue.task("threaded", max_attempts=1)
def threaded(n: int):
    time.sleep(0.01)
    say("threaded", n)

@queue.task("stubborn", max_attempts=1)
async def stubborn(n: int):
    say("stubborn", n)
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass
"""
TOPICS = ("quick", "slowly", "once", "threaded")


def stopped_at_random(shop: Shop, stops: int, options: tuple[str, ...], grace: float) -> list[float]:
    """Workers under load are stopped at random instants; what is true of the file after each, and in the end."""
    shop.write(LOAD)
    accepted: dict[str, int] = dict.fromkeys(TOPICS, 0)
    enough = threading.Event()

    def feed() -> None:
        while not enough.wait(0.05):
            if shop.counts().ready > 1_000:  # so that there is always work, and an end to it
                continue
            for topic in TOPICS:
                first = accepted[topic]
                shop.queue.send_many(topic, [Outgoing({"n": first + each}, delay=each / 20) for each in range(10)])
                accepted[topic] = first + 10

    feeder = threading.Thread(target=feed)
    feeder.start()
    times = []
    try:
        for number in range(stops):
            if number % 4 == 2:
                shop.queue.send("stubborn", {"n": number})
            worker = shop.start("--grace", f"{grace}s", "--concurrency", "20", *options)
            if number % 4:
                until(partial(listens, worker.pid))
            time.sleep(random.uniform(0, 1.5))  # the random instant; of one in four, also while it starts
            code, took = worker.stop()
            assert code in (0, -signal.SIGTERM), worker.err  # the latter: it had not begun to listen
            assert shop.counts().leased == 0, (number, worker.err)
            assert shop.counts().dead == 0, (number, worker.err)
            if code == 0:
                times.append(took)
    finally:
        enough.set()
        feeder.join()
    shop.queue.purge("stubborn", state="ready")
    worker = shop.start("--grace", "5s", *options)
    shop.empty()
    assert worker.stop()[0] == 0
    for topic in TOPICS:
        handled = Counter(line.words[1] for line in shop.lines(topic))
        assert set(handled) == set(range(accepted[topic])), f"{topic}: some were lost"
    assert shop.counts().dead == 0
    times.sort()
    print(f"{len(times)} stops {options}: {times[0]:.2f}, {times[len(times) // 2]:.2f}, {times[-1]:.2f} s (min, median, max)")
    return times


@pytest.mark.parametrize(
    "options", [pytest.param((), marks=pytest.mark.slow), ("--processes", "2")], ids=["alone", "supervised"]
)
def test_stops_at_random_instants_lose_nothing_and_cost_no_attempt(shop: Shop, options: tuple[str, ...]) -> None:
    times = stopped_at_random(shop, 5, options, 1)
    assert times[-1] < 1 + PROMISED + MARGIN


@pytest.mark.slow
@long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_a_hundred_stops_at_random_instants_lose_nothing(shop: Shop, options: tuple[str, ...]) -> None:
    times = stopped_at_random(shop, 100, options, 2)
    assert times[-1] < 2 + PROMISED + MARGIN
